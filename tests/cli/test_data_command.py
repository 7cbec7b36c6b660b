"""`wordorder data RECIPE`: tables for people, JSON for machines."""

import json

from typer.testing import CliRunner

from wordorder.cli.app import app

RECIPE = """
[data]
source = "{folder}/train.jsonl"
test_source = "{folder}/test.jsonl"

[task]
name = "masked-lm"

[tokenizer]
kind = "byte"

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


def test_a_table_of_the_splits_and_what_stands_in_two_of_them(tmp_path):
    shown = call(tmp_path)
    assert shown.exit_code == 0, shown.output
    for part in ("Texts", "examples", "1 training texts stand in validation or test too", "word40"):
        assert part in shown.stdout


def test_json(tmp_path):
    found = json.loads(call(tmp_path, "--json").stdout)
    assert (found["train"]["documents"], found["test"]["documents"]) == (27, 2)
    assert found["passed_over"]["leaks"]["count"] == 1


def test_classes_are_counted(tmp_path):
    rows = [{"text": f"a text of number {number}", "label": ("good", "bad")[number % 3 == 0]} for number in range(60)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = RECIPE.replace('"{folder}/train.jsonl"\ntest_source = "{folder}/test.jsonl"', '"{folder}/a.jsonl"')
    recipe = recipe.replace("masked-lm", "classification").format(folder=tmp_path)
    (tmp_path / "recipe.toml").write_text(recipe)
    shown = CliRunner().invoke(app, ["data", str(tmp_path / "recipe.toml")], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    for part in ("Classes", "good", "bad"):
        assert part in shown.stdout
