"""Folders of swapped models: a type of their own, which no class of transformers reads as the plain model.

``config.json`` has the model type "wordorder-swapped", the fields of the model below "host", and a vocab_size that is a
sentence: a class of transformers that is asked by name to read it stops there, and shows it.

A small folder has the encoding alone, as PEFT's adapters do: its weights, its options, and what model it belongs to.
"""

# transformers' configurations are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from wordorder.errors import BadInput
from wordorder.files import read_json
from wordorder.models.faults import stranger_faults
from wordorder.models.swap.families import FAMILIES, hosts_of

MODEL_TYPE = "wordorder-swapped"
REMEDY = "a swapped model: import wordorder.models, then AutoModel...from_pretrained(folder)"
SETTINGS, WEIGHTS = "wordorder_encoding.json", "wordorder_encoding.safetensors"
"""Names of the files of a small folder."""


class SwappedFields:
    """The part of a swapped model's configuration that is not its model's. Mixed in before that class."""

    wordorder: dict[str, Any]

    def to_json_file(self, json_file_path: str | Path, use_diff: bool = True) -> None:
        """Write the configuration as a type of its own."""
        fields = cast(Any, self).to_dict()
        for name in ("wordorder", "_name_or_path"):  # transformers writes no path of this machine either
            fields.pop(name, None)
        kind = fields.pop("model_type")
        document = {
            "model_type": MODEL_TYPE,
            "architectures": fields.pop("architectures", None),
            "vocab_size": REMEDY,
            "wordorder": {**self.wordorder, "host_type": kind},
            "host": fields,
        }
        Path(json_file_path).write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read a swapped folder's fields, or a plain one's: PEFT asks the class of the configuration for either."""
        if config_dict.get("model_type") == MODEL_TYPE:
            return SwappedConfig.from_dict(config_dict, **kwargs)
        return cast(Any, super()).from_dict(config_dict, **kwargs)

    def __reduce__(self) -> Any:
        plain = plain_class(type(self))
        return _rebuilt, (plain, vars(self))


class SwappedConfig(PreTrainedConfig):
    """The type "wordorder-swapped" as `AutoConfig` knows it; reading one returns the model's own configuration."""

    model_type = MODEL_TYPE

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Return the configuration of the model, with what was swapped in ``wordorder``."""
        settings, host = config_dict.get("wordorder"), config_dict.get("host")
        kind = settings.get("host_type") if isinstance(settings, dict) else None
        if kind not in FAMILIES or not isinstance(host, dict):
            raise BadInput(
                "config.json of a swapped model must hold wordorder.host_type, one of"
                f" {', '.join(FAMILIES)} (got {kind!r}), and that model's fields below host"
            )
        faults = stranger_faults(cast("dict[str, Any]", host), None)
        if faults:
            raise BadInput([f"config.json: {fault}" for fault in faults])
        swapped = checked_settings({**cast(Any, settings)}, "config.json")
        host = {**host, "architectures": config_dict.get("architectures")}
        result = swapped_class(type(AutoConfig.for_model(kind))).from_dict(host, **kwargs)
        (result[0] if isinstance(result, tuple) else result).wordorder = swapped
        return result


def checked_settings(settings: dict[str, Any], where: object) -> dict[str, Any]:
    """Return the arguments of `swap_encoding` that a file holds beside the type of its model."""
    settings.pop("host_type", None)
    types = {"encoding": str, "options": dict, "max_positions": int}
    if {name: type(value) for name, value in settings.items()} != types:
        raise BadInput(
            f"{where} must hold encoding (a name), options (a table) and max_positions (a number) of a swapped"
            f" model, got {settings}"
        )
    return settings


@cache
def swapped_class(kind: type[PreTrainedConfig]) -> Any:
    """Return the configuration's class with `SwappedFields`, known to every Auto class that knows the plain one."""
    swapped = type(f"Swapped{kind.__name__}", (SwappedFields, kind), {"__module__": __name__})
    for name in dir(modeling_auto):
        auto = getattr(modeling_auto, name)
        mapping = getattr(auto, "_model_mapping", None)
        if not name.startswith("AutoModel") or mapping is None or kind not in mapping:
            continue
        hosts = mapping[kind]
        auto.register(swapped, loader_of(hosts[0] if isinstance(hosts, tuple) else hosts, swapped), exist_ok=True)
    return swapped


def plain_class(swapped: type) -> type[PreTrainedConfig]:
    """Return the class of transformers from which a swapped configuration's class is made."""
    return swapped.__bases__[1]


@cache
def loader_of(host: type[PreTrainedModel], config: Any) -> Any:
    """Return a class whose objects are the host's, swapped as the configuration says: weights then load by name."""

    def make(cls: type, settings: Any, *args: Any, **kwargs: Any) -> PreTrainedModel:
        from wordorder.models.swap.swap import swap_encoding

        model = host(settings, *args, **kwargs)
        # some heads make their body by an Auto class, which has swapped it
        swapped = all(hasattr(part.body, "wordorder") for part in hosts_of(model))
        return model if swapped else swap_encoding(model, **settings.wordorder, start="drawn")

    return type(f"Swapped{host.__name__}", (host,), {"config_class": config, "__new__": make, "__module__": __name__})


def give_config(model: PreTrainedModel, settings: dict[str, Any]) -> None:
    """Give a model, and every part that shares its configuration, one that says what was swapped."""
    copies: dict[int, PreTrainedConfig] = {}
    for part in model.modules():
        config = getattr(part, "config", None)
        if isinstance(config, PreTrainedConfig) and not isinstance(config, SwappedFields):
            if id(config) not in copies:
                copies[id(config)] = copied = copy.deepcopy(config)
                copied.__class__ = swapped_class(type(config))
                cast(Any, copied).wordorder = settings
            cast(Any, part).config = copies[id(config)]


def take_config(model: PreTrainedModel) -> None:
    """Give a model, and every part that shares its configuration, a plain one again."""
    for part in model.modules():
        config = getattr(part, "config", None)
        if isinstance(config, SwappedFields):
            del config.wordorder
            cast(Any, config).__class__ = plain_class(type(config))


def register() -> None:
    """Make the type known to `AutoConfig`."""
    AutoConfig.register(MODEL_TYPE, SwappedConfig, exist_ok=True)


def save_swapped(model: PreTrainedModel, folder: str | Path) -> None:
    """Write the encoding of a swapped model alone, for `load_swapped`: its weights, and what it belongs to.

    The rest of the model is not written: it must be what `load_swapped` is given. If training changed it too, save the
    whole by ``model.save_pretrained``.

    Raises:
        BadInput: the model is not swapped.
    """
    settings = getattr(model.config, "wordorder", None)
    if settings is None:
        raise BadInput(f"model is a {type(model).__name__} whose encoding was not swapped; save_pretrained writes it")
    weights = _weights(model)
    if any("modules_to_save" in name for name in weights):
        raise BadInput("the model holds PEFT's copies of the encoding; model.merge_and_unload() gives the one to save")
    path, base, kind = Path(folder), model.config.name_or_path or None, model.config.model_type
    if base is not None and Path(base).is_absolute():
        base = None  # a path of this machine says nothing elsewhere
    path.mkdir(parents=True, exist_ok=True)
    document = {**settings, "base_model": base, "host_type": kind}
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, path / WEIGHTS)
    (path / SETTINGS).write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load_swapped(base: PreTrainedModel, folder: str | Path) -> PreTrainedModel:
    """Swap the encoding of a plain model as `save_swapped` wrote it, in place.

    Args:
        base: the model that was swapped, as it was before, with any head.
        folder: what `save_swapped` wrote.

    Raises:
        BadInput: a file is missing or damaged, or of another kind or size of model.
    """
    from wordorder.models.swap.swap import swap_encoding

    path = Path(folder)
    try:
        document = dict(read_json(path / SETTINGS))
        weights = load_file(path / WEIGHTS)
        kind, name = document["host_type"], document.pop("base_model")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise BadInput(f"{path} is no folder of save_swapped ({SETTINGS}, {WEIGHTS}): {error}") from None
    if base.config.model_type != kind:
        raise BadInput(f"{path} belongs to a {kind} ({name}), and the model is a {base.config.model_type}")
    document = checked_settings(document, path / SETTINGS)
    with torch.device("meta"):  # what the weights will have to be, before the model is touched
        planned = type(base)(copy.deepcopy(base.config))
    shapes = {key: tensor.shape for key, tensor in _weights(swap_encoding(planned, **document, start="drawn")).items()}
    if shapes != {key: tensor.shape for key, tensor in weights.items()}:
        raise BadInput(f"the weights in {path} are not of this model's sizes; take the model that was swapped ({name})")
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise BadInput(f"weights in {path} are not finite")
    swap_encoding(base, **document, start="drawn")
    with torch.no_grad():
        for key, tensor in _weights(base).items():
            tensor.copy_(weights[key])
    return base


def _weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights of the encoding, named from the model without its head."""
    state = cast(Any, model.base_model).state_dict()
    return {name: tensor for name, tensor in state.items() if "wordorder." in name}


def _rebuilt(plain: type[PreTrainedConfig], fields: dict[str, Any]) -> Any:
    """Return a swapped configuration; pickle cannot find its class by name."""
    config = object.__new__(swapped_class(plain))
    vars(config).update(fields)
    return config
