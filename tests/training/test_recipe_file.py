"""A recipe laid over another: what each of the two says, and what is wrong with the second."""

import pytest

from wordorder.errors import BadInput
from wordorder.training import read_recipe
from wordorder.training.recipe.files import copy_recipe, find_recipe, read_tables

ARMS = """
[data]
source = "sotu"
seed = 3

[task]
name = "masked-lm"
[model]
network = "encoder"
hidden_size = 16
num_attention_heads = 2
max_position_embeddings = 16
encoding = "rope"
encoding_options = { base = 100.0 }
[training]
max_steps = 5
[compare]
seeds = [0, 1]
[[compare.arms]]
name = "one"
[[compare.arms]]
name = "two"
"model.encoding" = "t5"
"model.encoding_options" = {}
"""


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    write("arms.toml", ARMS)
    return write


def test_values_that_are_given_replace_those_of_the_base(write):
    path = write(
        "sets/other.toml",
        'base = "../arms.toml"\n[data]\nlength = 8\n[model]\nencoding_options = { base = 7.0 }\n'
        "[training]\nmax_steps = 9\n"
        "[tokenizer]\nkind = 'byte'\n",
    )
    recipe = read_recipe(path, ["training.learning_rate=0.1"])
    assert (recipe.name, recipe.data.seed, recipe.data.length, recipe.tokenizer.kind) == ("other", 3, 8, "byte")
    assert (recipe.training.max_steps, recipe.training.learning_rate) == (9, 0.1)
    assert recipe.model["encoding_options"] == {"base": 7.0}
    assert [arm.name for arm in recipe.compare.arms] == ["one", "two"]
    assert recipe.for_arm(recipe.compare.arms[1]).model["encoding"] == "t5"


def test_a_list_of_arms_replaces_the_list(write):
    path = write("other.toml", 'base = "arms.toml"\n[[compare.arms]]\nname = "three"\n')
    compare = read_recipe(path).compare
    assert [arm.name for arm in compare.arms] == ["three"]
    assert compare.seeds == (0, 1)


def test_a_recipe_of_the_package_is_a_base_by_its_name_unless_a_file_of_that_name_lies_beside(write, tmp_path):
    path = write("other.toml", 'base = "demo"\n[training]\nmax_steps = 7\n')
    recipe = read_recipe(path)
    demo = read_recipe(find_recipe("demo"))
    assert (recipe.training.max_steps, demo.training.max_steps) == (7, 550)
    assert (recipe.data, recipe.model, recipe.compare) == (demo.data, demo.model, demo.compare)
    assert copy_recipe(path, tmp_path / "copies" / "mine.toml") == [tmp_path / "copies" / "mine.toml"]
    assert read_recipe(tmp_path / "copies" / "mine.toml").to_dict()["data"] == recipe.to_dict()["data"]
    write("demo", ARMS)
    assert [arm.name for arm in read_recipe(path).compare.arms] == ["one", "two"]


def test_the_resolved_recipe_stands_alone(write, tmp_path):
    recipe = read_recipe(write("other.toml", 'base = "arms.toml"\n[data]\nlength = 8\n'))
    assert 'base = "' not in recipe.to_toml()
    (tmp_path / "elsewhere").mkdir()
    again = tmp_path / "elsewhere" / "other.toml"
    again.write_text(recipe.to_toml())
    assert read_recipe(again).to_dict() == recipe.to_dict()


def test_a_recipe_without_base_is_its_own_tables(write, tmp_path):
    assert read_tables(tmp_path / "arms.toml")["data"] == {"source": "sotu", "seed": 3}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("base = 3", r"base: must be another recipe's file, or the name of a packaged one, got 3"),
        ("base = ' '", r"base: must be another recipe's file"),
        ('base = "nowhere.toml"', r"base: there is no file .*nowhere\.toml, .*; the name of a file is relative"),
        ('base = "demmo"', r"no recipe of the package is called 'demmo'; did you mean demo, .*demo_long"),
        ('base = "demo_long"', r"base: .*demo_long\.toml has a base itself"),
        ('base = "."', r"base: there is no file"),
        ('base = "second.toml"', r"base: .*second\.toml has a base itself"),
        ('base = "broken.toml"', r"broken\.toml: is not valid TOML"),
        ('base = "arms.toml"\n[traning]\n', r"unknown name 'traning'; did you mean 'training'"),
        ('base = "arms.toml"\n[data]\nlenght = 3\n', r"\[data\]: unknown name 'lenght'; did you mean 'length'"),
        ('base = "arms.toml"\ndata = 3\n', r"data: must be a section"),
    ],
)
def test_a_wrong_base_is_one_clear_fault(write, text, fault):
    write("second.toml", 'base = "arms.toml"')
    write("broken.toml", "[data")
    with pytest.raises(BadInput, match=fault):
        read_recipe(write("other.toml", text))


def test_a_base_cannot_be_set_from_the_command_line(write, tmp_path):
    with pytest.raises(BadInput, match="names no section"):
        read_recipe(tmp_path / "arms.toml", ["base=arms.toml"])
