"""`wordorder cost RECIPE`: the memory of every arm."""

import json

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app

RECIPE = """
[data]
source = "sotu"
length = 16

[task]
name = "masked-lm"
[tokenizer]
kind = "byte"
[model]
network = "encoder"
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
max_position_embeddings = 16
[training]
max_steps = 1000
batch_size = 16
micro_batch_size = 8
"""
ARMS = """
[compare]
seeds = [0]
[[compare.arms]]
name = "a"
"model.encoding" = "rope"
[[compare.arms]]
name = "b"
"model.encoding" = "tupe-r"
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(RECIPE)
    return path


def said(*arguments):
    result = CliRunner().invoke(app, ["cost", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


def arms_of(*arguments):
    return json.loads(said(*arguments, "--json"))["arms"]


def test_every_arm_has_the_memory_of_its_states(recipe):
    recipe.write_text(RECIPE + ARMS)
    arms = arms_of(recipe)
    assert [arm["arm"] for arm in arms] == ["a", "b"]
    for arm in arms:
        weights = 4 * arm["parameters"]["total"]
        assert (arm["parameter_bytes"], arm["gradient_bytes"], arm["optimizer_bytes"]) == (
            weights,
            weights,
            2 * weights,
        )
    shown = said(recipe)
    for arm in arms:
        total = sum(arm[f"{part}_bytes"] for part in ("parameter", "gradient", "optimizer", "activation")) / 2**20
        assert f"{total:,.1f}" in shown[shown.index("MiB in a training step") :]
