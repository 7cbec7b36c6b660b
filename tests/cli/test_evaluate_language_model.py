"""`wordorder evaluate` of a language model with a memory, in every context."""

import json

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app

RECIPE = """
[data]
source = "{source}"
length = 16

[task]
name = "causal-lm"
packing = "lanes"
[tokenizer]
kind = "byte"
[model]
network = "decoder"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
encoding = "transformer-xl"
memory = "segment-recurrence"
memory_length = 16
[training]
output_dir = "{folder}/run"
max_steps = 1
batch_size = 2
trackers = []
device = "cpu"
"""


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    from wordorder.training import read_recipe, run

    folder = tmp_path_factory.mktemp("language-model")
    rows = [{"text": f"Text {number}. " + "It goes on and on. " * (number % 5 + 1)} for number in range(20)]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "memory.toml").write_text(RECIPE.format(source=folder / "texts.jsonl", folder=folder))
    return run(read_recipe(folder / "memory.toml"), progress=False).model_dir


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ([], {"context": "memory", "length": 16, "memory_length": 16}),
        (["--lanes", "1", "--memory-length", "40"], {"context": "memory", "memory_length": 40, "lanes": 1}),
        (["--context", "segment", "--length", "24"], {"context": "segment", "length": 24}),
        (["--context", "sliding", "--stride", "4"], {"context": "sliding", "stride": 4}),
    ],
)
def test_the_scores_say_how_the_text_was_read(model_dir, options, how):
    source = str(model_dir.parents[1] / "texts.jsonl")
    result = CliRunner().invoke(app, ["evaluate", str(model_dir), source, "--json", *options])
    assert result.exit_code == 0, result.output
    scores = json.loads(result.stdout)
    assert how.items() <= scores.items()
    assert scores["word_perplexity"] > scores["perplexity"] > 1


def test_options_of_another_context_are_bad_input(model_dir):
    result = CliRunner().invoke(app, ["evaluate", str(model_dir), "sotu", "--stride", "4"])
    assert result.exit_code == 2
    assert "stride is for context sliding, not for memory" in result.stderr
