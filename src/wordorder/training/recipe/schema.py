"""The JSON Schema of recipes, by which editors complete and check them, and from which the page of recipes is made."""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any, cast, get_args

from pydantic import TypeAdapter

from wordorder import __version__
from wordorder.files import MOST_COUNT
from wordorder.section import Section

_ARGUMENT = re.compile(r"^ {4}(\w+): (.*?)(?=^ {4}\w|^\S|\Z)", flags=re.MULTILINE | re.DOTALL)


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a recipe.

    It knows names, types, ranges, defaults and what each value means; `read_recipe` also checks what does not go
    together. Types of [model] are those of all networks; the description says which network has a field.
    """
    from wordorder.data import DataSettings, TokenizerConfig
    from wordorder.training.recipe.comparison_section import SECTIONS, CompareConfig
    from wordorder.training.recipe.settings import TrainingSettings

    kinds: tuple[type[Section], ...] = (DataSettings, TokenizerConfig, TrainingSettings, CompareConfig)
    sections = {kind.section: _table(kind.model_json_schema()) for kind in kinds}
    sections |= {"task": _task(), "model": _model()}
    del sections["data"]["required"]  # a recipe that is laid over a base says less
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Recipe of wordorder {__version__}",
        "type": "object",
        "properties": {
            "base": {"type": "string", "description": "Another recipe, over which this one is laid."},
            **{name: sections[name] for name in SECTIONS},
        },
        "additionalProperties": False,
    }


def _table(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its definitions put in place, without titles and nulls, which TOML does not have."""
    definitions: dict[str, Any] = schema.pop("$defs", {})

    def plain(part: Any) -> Any:
        if isinstance(part, list):
            return [plain(inner) for inner in cast("list[Any]", part) if inner != {"type": "null"}]
        if not isinstance(part, dict):
            return part
        table = cast("dict[str, Any]", part)
        if "$ref" in table:
            table = definitions[table["$ref"].rpartition("/")[2]] | {k: v for k, v in table.items() if k != "$ref"}
        kept = {key: plain(value) for key, value in table.items() if not (key == "title" and isinstance(value, str))}
        if kept.get("default", ...) is None:
            del kept["default"]
        if isinstance(kept.get("description"), str):
            kept["description"] = " ".join(kept["description"].partition("Raises:")[0].split())
        if kept.get("maximum") == MOST_COUNT:
            del kept["maximum"]  # a technical limit
        if "anyOf" in kept:
            types = kept.pop("anyOf")
            if any(inner.get("type") == "number" for inner in types):
                types = [inner for inner in types if inner.get("type") != "integer"]
            kept = (types[0] if len(types) == 1 else {"anyOf": types}) | kept
        return kept

    return plain(schema)


def _task() -> dict[str, Any]:
    """Return the options of all tasks; where tasks have one of the same name, the description is the first one's."""
    from wordorder.tasks import TASKS

    properties: dict[str, Any] = {
        "name": {"enum": list(TASKS), "description": "The task; it decides which of the other keys there are."}
    }
    owners: dict[str, list[str]] = {}
    for name, task in TASKS.items():
        for option, part in _table(task.Options.model_json_schema())["properties"].items():
            if option == "name":
                continue
            owners.setdefault(option, []).append(name)
            values = [*properties.get(option, {}).get("enum", ()), *part.get("enum", ())]
            properties[option] = part | properties.get(option, {}) | ({"enum": values} if values else {})
    for option, names in owners.items():
        part = properties[option]
        part["description"] = f"Of {', '.join(names)}. {part.get('description', '')}".strip()
        if len(names) > 1 and "enum" in part:
            part.pop("default", None)  # each has its own
    return {
        "type": "object",
        "description": "The task, and its options.",
        "properties": properties,
        "additionalProperties": False,
    }


def _model() -> dict[str, Any]:
    from wordorder.models import NETWORK_TASKS, config_fields
    from wordorder.models.factory import config_class
    from wordorder.models.swap.families import FAMILIES
    from wordorder.models.swap.swap import Start
    from wordorder.tasks import tasks_of

    properties: dict[str, Any] = {
        "network": {"enum": list(NETWORK_TASKS), "description": "The network."},
        "pretrained": {
            "type": "string",
            "description": "Folder of a saved model that gives weights, sizes and tokeniser; {arm} and {seed} in it "
            "stand for an arm's name and a run's seed. The model may be one of transformers "
            f"({', '.join(kind for kind in FAMILIES if tasks_of(kind))}): then only encoding, encoding_options, "
            "encoding_start and max_position_embeddings (the length of the encoding's tables) may be set beside it, "
            'and the encoding "model", the default, stands for the positions that the model has of its own.',
        },
        "encoding_start": {
            "enum": list(get_args(Start)),
            "description": "What an encoding's weights begin with in a model of transformers; see `swap_encoding`.",
        },
        "num_labels": {"type": "integer", "description": "Number of classes; the data says it."},
    }
    owners: dict[str, list[str]] = {}
    for network in NETWORK_TASKS:
        kind = config_class(network)
        types, described = {field.name: field.type for field in dataclasses.fields(kind)}, _described(kind)
        for name, default in config_fields(network).items():
            found = _table(TypeAdapter(cast("Any", types[name])).json_schema())
            if default is not None:
                found["default"] = default
            if name in described:
                found["description"] = described[name]
            properties.setdefault(name, found)
            owners.setdefault(name, []).append(network)
    for name, networks in owners.items():
        if len(networks) < len(NETWORK_TASKS):
            text = properties[name].get("description", "")
            properties[name]["description"] = f"Of {', '.join(networks)}. {text}".strip()
    return {
        "type": "object",
        "description": "The network, and the fields of its configuration.",
        "properties": properties,
        "additionalProperties": False,
    }


def _described(kind: type) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        found |= {name: text[0].upper() + text[1:] for name, text in meanings_of_arguments(owner).items()}
    return found


def meanings_of_arguments(kind: type) -> dict[str, str]:
    arguments = (inspect.getdoc(kind) or "").partition("\nArgs:\n")[2]
    return {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}
