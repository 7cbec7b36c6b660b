import math
import tomllib

import pytest

from wordorder.training.recipe.files import parse_value, set_dotted, split_key, to_toml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-3", 0.003),
        ("1_000", 1000),
        ("true", True),
        ("[0, 1]", [0, 1]),
        ("{base = 5e5}", {"base": 5e5}),
        ('"quoted"', "quoted"),
        ("rope", "rope"),
        ("runs/a b", "runs/a b"),
        ("2020-01-01", "2020-01-01"),
        ("", ""),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_values_are_toml_and_otherwise_the_string_itself(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_quoted_parts_of_a_key_keep_their_dots():
    assert split_key('model."a.b".c') == ["model", "a.b", "c"]


@pytest.mark.parametrize("key", ["", "a b", "a.", "a = 1\nb", "a..b"])
def test_what_is_no_dotted_name_is_refused(key):
    with pytest.raises(ValueError, match="dotted name"):
        split_key(key)


def test_a_value_is_put_into_tables_that_are_made():
    tree = {"model": {"encoding_options": {"base": 1.0, "scale": 2.0}}}
    set_dotted(tree, "model.encoding_options.base", 3.0)
    set_dotted(tree, "training.seed", 1)
    assert tree == {"model": {"encoding_options": {"base": 3.0, "scale": 2.0}}, "training": {"seed": 1}}


@pytest.mark.parametrize(("key", "words"), [("seed", "names no section"), ("model.width.x", "is a value, not a table")])
def test_a_place_that_is_no_table_is_refused(key, words):
    with pytest.raises(ValueError, match=words):
        set_dotted({"model": {"width": 1}}, key, 0)


def test_what_is_written_is_read_back():
    tree = {
        "data": {"source": 'a "b" \\ ü\x7f\n', "limit": 3, "rate": 1e-300, "infinite": math.inf, "on": False},
        "model": {"options": {"a.b": [1, 2.5], "c": {"d": "e"}}, "odd key": 1},
        "compare": {"seeds": [0, 1], "arms": [{"name": "a", "model.encoding": "rope"}, {"name": "b"}]},
    }
    assert tomllib.loads(to_toml(tree)) == tree


def test_none_is_left_out():
    assert tomllib.loads(to_toml({"data": {"length": None, "seed": 0}})) == {"data": {"seed": 0}}
