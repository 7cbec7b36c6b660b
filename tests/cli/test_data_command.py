"""`wordorder data RECIPE`: tables for people, JSON for machines, and examples of what stands in two splits."""

import json

from typer.testing import CliRunner

from wordorder.cli.app import app

RECIPE = """
[data]
source = "{folder}/train.jsonl"
test_source = "{folder}/test.jsonl"
task = "masked-lm"

[tokenizer]
kind = "word"

[model]
network = "encoder"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 32
"""


def call(tmp_path, *options):
    texts = [" ".join(f"word{number}{place}" for place in range(30)) for number in range(30)]
    for name, own in (("train", texts[:28]), ("test", [texts[29], texts[4].upper()])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in own))
    (tmp_path / "recipe.toml").write_text(RECIPE.format(folder=tmp_path))
    return CliRunner().invoke(app, ["data", str(tmp_path / "recipe.toml"), *options], catch_exceptions=False)


def test_tables_and_examples(tmp_path):
    shown = call(tmp_path)
    assert shown.exit_code == 0
    for part in ("Texts", "Tokens per document", "Duplicates within a split", "test in train", "50.00%", "WORD40"):
        assert part in shown.stdout


def test_json(tmp_path):
    found = json.loads(call(tmp_path, "--json", "--examples", "0").stdout)
    assert found["splits"]["test"]["documents"] == 2
    pair = next(pair for pair in found["between"] if (pair["earlier"], pair["later"]) == ("train", "test"))
    assert (pair["exact"], pair["share"], pair["examples"]) == (1, 0.5, [])
