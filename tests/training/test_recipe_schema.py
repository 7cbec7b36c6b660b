"""`wordorder list schema`: the schema knows every name, and every recipe of the repository is valid by it."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.files import read_toml
from wordorder.tasks import TASKS
from wordorder.training import TrainingSettings
from wordorder.training.recipe.files import packaged_recipes
from wordorder.training.recipe.schema import recipe_schema

EVIDENCE = Path(__file__).resolve().parents[2] / "evidence" / "recipes"
RECIPES = [*packaged_recipes().values(), *sorted(EVIDENCE.rglob("*.toml"))]
TYPES = {"string": str, "boolean": bool, "object": dict, "array": list}


def faults_of(value, schema, where="recipe"):
    """Return the places where a value is not what a schema says: the keywords that ours uses."""
    if "anyOf" in schema:
        return [] if any(not faults_of(value, inner) for inner in schema["anyOf"]) else [where]
    kind = schema.get("type")
    if kind in ("integer", "number"):
        right = isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)
        if not right or value < schema.get("minimum", value) or value > schema.get("maximum", value):
            return [where]
    elif kind is not None and not isinstance(value, TYPES[kind]):
        return [where]
    if "enum" in schema and value not in schema["enum"]:
        return [where]
    if isinstance(value, list):
        return [f for i, item in enumerate(value) for f in faults_of(item, schema.get("items", {}), f"{where}[{i}]")]
    if not isinstance(value, dict):
        return []
    found = [f"{where}.{name}" for name in schema.get("required", ()) if name not in value]
    for name, inner in value.items():
        patterns = [s for pattern, s in schema.get("patternProperties", {}).items() if re.search(pattern, name)]
        known = schema.get("properties", {}).get(name, patterns[0] if patterns else schema.get("additionalProperties"))
        found += [f"{where}.{name}"] if known is False else faults_of(inner, {} if known in (None, True) else known)
    return found


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_of_the_repository_is_valid_by_the_schema(path):
    assert faults_of(read_toml(path), recipe_schema()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"dta": {}},
        {"data": {"tsk": "masked-lm"}},
        {"data": {"task": "mlm"}},
        {"data": {"length": "64"}},
        {"data": {"length": 7}},
        {"tokenizer": {"kind": "wordpeice"}},
        {"model": {"encodng": "rope"}},
        {"model": {"norm": "batch"}},
        {"training": {"learning_rat": 1.0}},
        {"training": {"precision": "bf17"}},
        {"training": {"trackers": "tensorboard"}},
        {"compare": {"seeds": ["a"]}},
        {"compare": {"arms": [{}]}},
        {"compare": {"arms": [{"name": "a", "data.seed": 1}]}},
    ],
)
def test_what_is_wrong_is_wrong_by_the_schema(wrong):
    assert faults_of(wrong, recipe_schema()) != []


def test_every_name_is_there_with_type_meaning_and_default():
    schema = recipe_schema()["properties"]
    assert set(schema["training"]["properties"]) == set(TrainingSettings.model_fields)
    for section in ("data", "task", "tokenizer", "training", "compare"):
        for name, known in schema[section]["properties"].items():
            assert known.get("description"), (section, name)
            assert {"type", "enum", "anyOf"} & known.keys(), (section, name)
            assert "null" not in json.dumps(known), (section, name)
    defaults = {n: s["default"] for n, s in schema["training"]["properties"].items() if "default" in s}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in TrainingSettings()}
    assert defaults == {name: value for name, value in plain.items() if value is not None}
    assert schema["task"]["properties"]["name"]["enum"] == list(TASKS)
    assert schema["model"]["properties"]["share_embeddings"]["description"].startswith("Of seq2seq. ")


def test_the_command_prints_it():
    assert json.loads(CliRunner().invoke(app, ["list", "schema"]).stdout) == recipe_schema()
