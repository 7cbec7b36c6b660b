"""Names that transformers gave up are still taken, in silence, and do what they did."""

import pytest
from transformers import TrainingArguments

from wordorder.training.recipe.arguments import RENAMED, build_arguments


@pytest.mark.parametrize("name", sorted(RENAMED.items()))
def test_both_names_do_the_same(tmp_path, name):
    old, new = name
    value = {"use_reentrant": False} if old.endswith("kwargs") else True
    found = build_arguments({old: value}, tmp_path)  # a FutureWarning would be an error here
    assert getattr(found, old) == value
    if hasattr(TrainingArguments, new):
        assert getattr(build_arguments({new: value}, tmp_path), old) == value
        assert getattr(build_arguments({old: value, new: None if value is True else {}}, tmp_path), new) != value
