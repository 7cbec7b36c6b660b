"""The faults that a newcomer makes first, each with its remedy in one line."""

import json
import re

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app

ARMS = """
[compare]
seeds = [0]

[[compare.arms]]
name = "one"
"model.encoding" = "RoPE"

[[compare.arms]]
name = "two"
"model.encoding" = "TUPE_R"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, recipe_text):
    """Work in a folder with a corpus of one file, and recipes for one model and for two arms."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    for number in range(6):
        text = " ".join(f"word{(number * place) % 23}" for place in range(60))
        (tmp_path / "corpus" / f"{number}.txt").write_text(text)
    recipe = recipe_text.replace("corpus.txt", "corpus/*.txt")
    (tmp_path / "one.toml").write_text(recipe)
    (tmp_path / "arms.toml").write_text(recipe.replace('"run"', '"both"') + ARMS)
    return tmp_path


COUNTED = "2 models, 2 runs in all. Nothing was trained.\n"
"""The last line of `compare --dry-run`."""


def call(*words, code=0):
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("words", [["predict", "nowhere", "a"], ["generate", "nowhere", "a"]])
def test_a_folder_that_is_not_there_is_not_said_to_hold_no_model(words, folder):
    assert call(*words, code=2).stderr == (
        "wordorder: nowhere: there is no such folder; name the folder model/ of a run\n"
    )
    (folder / "nowhere").mkdir()
    assert "nowhere: holds no model (no config.json)" in call(*words, code=2).stderr


def test_a_run_in_the_folder_of_a_comparison_says_that_it_is_one(folder):
    (folder / "run").mkdir()
    (folder / "run" / "results.json").write_text("{}")
    said = call("train", "one.toml", code=2).stderr
    assert "'run' holds a comparison; go on with it by wordorder compare, or name another folder" in said
    assert "--output-dir FOLDER" in said


@pytest.mark.parametrize(
    ("word", "task"), [("mlm", "masked-lm"), ("clm", "causal-lm"), ("classificaton", "classification")]
)
def test_a_task_by_its_abbreviation_has_the_one_that_is_meant(word, task):
    assert f"did you mean {task!r}?" in call("train", "one.toml", "--set", f"task.name={word}", code=2).stderr


def test_an_abbreviation_of_nothing_has_no_suggestion():
    assert "did you mean" not in call("train", "one.toml", "--set", "task.name=mxq", code=2).stderr


def test_encodings_are_read_as_papers_write_them_and_stored_as_the_catalogue_does():
    resolved = json.loads(call("compare", "arms.toml", "--dry-run", "--json").stdout)
    assert [arm["model.encoding"] for arm in resolved["compare"]["arms"]] == ["rope", "tupe-r"]
    resolved = json.loads(
        call("train", "one.toml", "--set", "model.encoding=RoPE+TUPE-A", "--dry-run", "--json").stdout
    )
    assert resolved["model"]["encoding"] == "rope+tupe-a"


def test_an_unknown_encoding_has_the_nearest_ones_and_how_to_list_all():
    assert "did you mean 'rope'? " in call("train", "one.toml", "--set", "model.encoding=rotary", code=2).stderr
    said = call("train", "one.toml", "--set", "model.encoding=roap", "--dry-run", code=2).stderr
    assert "unknown encoding 'roap'; did you mean 'rope'" in said
    assert "`wordorder list` shows all" in said
    assert len(said) < 450


@pytest.mark.parametrize(
    "words", [["train", "one.toml", "--dry-run"], ["compare", "arms.toml", "--dry-run"], ["data", "one.toml"]]
)
def test_few_examples_of_a_split_are_said_before_training(words, folder):
    said = call(*words).stderr.replace(COUNTED, "")
    assert re.fullmatch(
        r"the validation split has \d+ examples? and the test split has \d+ examples?, fewer than 20: scores on so few "
        r"are mostly chance; give more text, or raise data.validation_fraction and data.test_fraction\n",
        said,
    )
    for number in range(600):
        (folder / "corpus" / f"more-{number}.txt").write_text(f"another text with the number {number} " * 6)
    fractions = ["--set", "data.test_fraction=0.2", "--set", "data.validation_fraction=0.2"]
    assert call(*words, *fractions).stderr.replace(COUNTED, "") == ""


def test_a_recipe_without_a_test_is_not_said_to_have_few_examples_of_it():
    said = call("train", "one.toml", "--dry-run", "--set", "data.test_source=none").stderr
    assert "the validation split has" in said
    assert "test" not in said


@pytest.mark.slow
def test_few_examples_are_said_once_by_a_run_and_by_a_comparison():
    assert call("train", "one.toml").stderr.count("fewer than 20") == 1
    assert call("compare", "arms.toml").stderr.count("fewer than 20") == 1
    assert "fewer than 20" not in call("train", "one.toml", "--output-dir", "again", "--json").stderr


def test_masks_in_small_letters_are_masks_and_scoring_says_what_it_does(folder):
    call("train", "one.toml", "--json")
    large, small = (
        json.loads(call("predict", "run/model", f"word1 {mask} word2", "--json").stdout)[0]["answers"]
        for mask in ("[MASK]", "[mask]")
    )
    assert small == large
    assert "text has no [MASK]" in call("predict", "run/model", "word1", code=2).stderr
    said = call("evaluate", "run/model", "corpus/*.txt", "--split", "all").stderr
    assert re.fullmatch(r"scoring \d+ examples of corpus/\*\.txt, split all\n", said)
    assert call("evaluate", "run/model", "corpus/*.txt", "--split", "all", "--json").stderr == ""


def test_a_dry_run_counts_seeds_folds_and_rates(folder):
    text = (folder / "arms.toml").read_text()
    (folder / "many.toml").write_text(text.replace("seeds = [0]", "seeds = [0, 1]\ngrid = [1e-3, 2e-3, 4e-3]"))
    assert "2 models, 12 runs in all. Nothing was trained.\n" in call("compare", "many.toml", "--dry-run").stderr
