"""`wordorder list recipes`, copies by `wordorder init`, and the number of seeds on the command line."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.training.recipe.files import find_recipe, packaged_recipes


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


def run(*words, code=0):
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_every_recipe_is_listed_with_task_minutes_and_one_line():
    found = {own["name"]: own for own in json.loads(run("list", "recipes", "--json"))}
    assert list(found) == list(packaged_recipes())
    assert {name: found[name]["minutes"] for name in ("demo", "pretraining", "demo_long")} == {
        "demo": 5,
        "pretraining": 120,
        "demo_long": 120,
    }
    assert found["classification"]["task"] == "classification"
    assert found["demo_long"]["task"] == "masked-lm"
    shown = run("list", "recipes")
    assert "demo (masked-lm, 5 min)\n    Compare four encodings on masked letters" in shown
    assert all(f"{name} ({own['task']}" in shown and own["about"] in shown for name, own in found.items())


def test_a_copy_has_its_base_beside_it_and_is_a_recipe():
    shown = run("init", "demo-long", "--out", "mine/long.toml")
    assert Path("mine/long.toml").read_bytes() == find_recipe("demo_long").read_bytes()
    assert Path("mine/demo.toml").read_bytes() == find_recipe("demo").read_bytes()
    assert "Written: mine/long.toml\nWritten: mine/demo.toml\n" in shown
    assert "wordorder compare mine/long.toml --dry-run" in shown
    assert "wordorder compare 'two words.toml' --dry-run" in run("init", "demo", "--out", "two words.toml")
    assert "max_steps = 6000" in run("compare", "mine/long.toml", "--dry-run")


def test_a_copy_has_the_recipes_name_and_replaces_nothing():
    run("init", "DEMO")
    assert Path("demo.toml").read_bytes() == find_recipe("demo").read_bytes()
    assert run("init", "demo", code=2) == ("wordorder: demo.toml: exists and is not replaced; name another file\n")
    assert "Written: demo_long.toml\nCheck" in run("init", "demo_long")  # its base is there already
    Path("demo.toml").write_text("# mine\n")
    assert "demo.toml: exists" in run("init", "demo_long", "--out", "b.toml", code=2)
    assert not Path("b.toml").exists()
    assert Path("demo.toml").read_text() == "# mine\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--data DATA --task TASK, or the name of a recipe"),
        (["dmeo"], "did you mean demo"),
        (["demo", "--data", "texts"], "demo: a copy takes --out alone"),
        (["demo", "--out", "mine"], "mine: a recipe's name ends in .toml; write mine.toml"),
        (["demo_long", "--out", "demo.toml"], "demo.toml: is the name of the recipe's base"),
    ],
)
def test_what_cannot_be_copied_is_one_error(words, said):
    assert said in run("init", *words, code=2)
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize(
    "words", [["--seeds", "4"], ["--set", "compare.seeds=4"], ["--set", "compare.seeds=[0,1,2,3]"]]
)
def test_a_number_of_seeds_is_the_list_of_them(words):
    assert re.findall(r"^seeds = .*$", run("compare", "demo", *words, "--dry-run"), flags=re.MULTILINE) == [
        "seeds = [0, 1, 2, 3]"
    ]


@pytest.mark.parametrize("number", ["0", "-2", "100001"])
def test_a_number_of_seeds_that_cannot_be_is_refused(number):
    said = run("compare", "demo", "--seeds", number, "--dry-run", code=2)
    assert said == (
        f"wordorder: compare.seeds: must be at least 1 and at most 100,000, or a list of seeds, got {number}\n"
    )


def test_the_run_folder_has_one_option_in_every_command():
    shown = run("train", "demo", "--output-dir", "there", "--dry-run")
    assert 'output_dir = "there"' in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["compare", "demo", "--seds", "3"],
            "No such option: --seds; did you mean --seeds? `wordorder compare --help`",
        ),
        (
            ["train", "demo", "--learning-rate", "3"],
            "No such option: --learning-rate; write --set training.learning_rate=",
        ),
        (["cost", "demo", "--encoding", "rope"], "write --set model.encoding=VALUE; `wordorder cost --help` lists"),
        (["predict", "x", "--zzz"], "No such option: --zzz; `wordorder predict --help` lists the options"),
    ],
)
def test_an_unknown_option_has_the_one_that_is_meant_and_no_other(words, said):
    (line,) = run(*words, code=2).splitlines()
    assert said in line
    assert line.count("--") <= 4
