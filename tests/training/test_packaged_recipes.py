"""Recipes of the package are found by name, and say in their first line what they ask."""

from pathlib import Path

import pytest

from wordorder.errors import BadInput
from wordorder.training import read_recipe
from wordorder.training.recipe.files import ENDING, FOLDER, find_recipe, packaged_recipes, summary_of

EVIDENCE = Path(__file__).resolve().parents[2] / "evidence" / "recipes"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("demo", "demo"),
        ("demo.toml", "demo"),
        ("Demo-Long", "demo_long"),
        ("Masked-LM.toml", "masked_lm"),
    ],
)
def test_a_name_is_read_in_every_spelling(given, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_recipe(given) == FOLDER / f"{name}.toml"
    assert find_recipe(given).is_file()


def test_a_file_of_the_reader_comes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("demo.toml").write_text("[data]\n")
    assert find_recipe("demo.toml") == Path("demo.toml")
    assert find_recipe("demo") == FOLDER / "demo.toml"


def test_a_folder_of_that_name_is_not_in_the_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    Path("other").mkdir()
    assert find_recipe("demo") == FOLDER / "demo.toml"
    with pytest.raises(BadInput, match="other: is a folder; name the recipe's TOML file"):
        find_recipe("other")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("masked_ml", "no file and no recipe of the package; did you mean masked_lm? "),
        ("demos", "did you mean demo, "),
        ("nothing.toml", "nothing.toml: no such file; `wordorder list recipes` lists"),
        ("qqq", "qqq: no file and no recipe of the package; `wordorder list recipes` lists them"),
    ],
)
def test_an_unknown_name_says_which_ones_are_near_and_how_to_list_them(given, said):
    with pytest.raises(BadInput) as error:
        find_recipe(given)
    (fault,) = error.value.faults
    assert said in fault
    assert "`wordorder list recipes` lists" in fault


def test_the_run_folder_of_a_packaged_recipe_is_named_after_it():
    assert read_recipe(find_recipe("demo")).output_dir == Path("runs/demo")
    assert read_recipe(find_recipe("masked-lm")).output_dir == Path("runs/masked_lm")


def test_the_package_has_eight_recipes_each_with_its_minutes():
    assert list(packaged_recipes()) == [
        *("causal_lm", "classification", "demo", "demo_long", "masked_lm", "memory"),
        *("pretraining", "translation"),
    ]
    assert not [path for path in FOLDER.iterdir() if path.suffix != ENDING]
    assert all(summary_of(name)["minutes"] for name in packaged_recipes())


@pytest.mark.parametrize("path", [*packaged_recipes().values(), *EVIDENCE.rglob("*.toml")], ids=lambda path: path.stem)
def test_the_first_line_describes_the_recipe(path):
    first, second = path.read_text(encoding="utf-8").splitlines()[:2]
    assert first.startswith("# ")
    assert 20 < len(first) <= 92
    assert first[-1] in ".?"
    assert second == "#"
