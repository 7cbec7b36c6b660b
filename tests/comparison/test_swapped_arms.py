"""A comparison of encodings in one model folder of transformers."""

import json

import pytest

from wordorder.comparison import compare, markdown_table, read_results
from wordorder.comparison.costs import costs_of
from wordorder.errors import BadInput
from wordorder.training import read_recipe

RECIPE = """
[data]
source = "{source}"
length = 32

[task]
name = "masked-lm"

[model]
pretrained = "{model}"

[training]
output_dir = "{folder}/compared"
max_steps = 2
batch_size = 4
evaluate_every = 2
trackers = []
device = "cpu"

[compare]
seeds = [0, 1]
baseline = "model"

[[compare.arms]]
name = "model"
"model.encoding" = "model"

[[compare.arms]]
name = "model+t5"
"model.encoding" = "model+t5"
"model.encoding_options" = {{ buckets = 8 }}
"""


@pytest.fixture
def path(tmp_path, corpus, bert):
    path = tmp_path / "swapped.toml"
    path.write_text(RECIPE.format(source=f"{corpus}/*/*.txt", model=bert, folder=tmp_path))
    return path


def test_two_arms_with_two_seeds_end_with_a_table_that_counts_the_new_weights(path):
    results = read_results(compare(read_recipe(path), progress=False))
    assert results.complete
    assert len(results.rows) == 4
    plain, swapped = (arm for arm in results.arms)
    assert (plain.parameters["encoding"], swapped.parameters["encoding"]) == (0, 8 * 4)
    sizes = {row.arm: row.parameters for row in results.rows}
    assert sizes["model+t5"] == sizes["model"] + 8 * 4
    table = markdown_table(results)
    assert "| model+t5 |" in table
    assert "start from the same saved model" in table


def test_costs_are_known_before_anything_is_trained(path):
    costs, _ = costs_of(read_recipe(path))
    assert [(own["arm"], own["parameters"]["encoding"]) for own in costs] == [("model", 0), ("model+t5", 32)]
    assert not any(own["vocab_size_is_upper_bound"] for own in costs)


def test_an_arm_that_cannot_be_is_refused_before_any_run(path, tmp_path):
    broken = ['compare.arms=[{name="a", "model.encoding"="model"}, {name="b", "model.encoding"="xlstm"}]']
    with pytest.raises(BadInput, match=r"arm 'b': .*unknown encoding 'xlstm'"):
        read_recipe(path, [*broken, 'compare.baseline="a"'])
    with pytest.raises(BadInput, match=r"arm 'model': model\.hidden_size"):
        read_recipe(path, ['compare.arms=[{name="model", "model.hidden_size"=4}]'])
    assert not (tmp_path / "compared").exists()


def test_arms_that_cannot_be_resized_are_refused_where_sizes_must_agree(path):
    with pytest.raises(BadInput, match=r"sets model\.pretrained itself and is not resized"):
        compare(
            read_recipe(
                path,
                ['compare.match="parameters"', 'compare.arms=[{name="model"}, {name="none", "model.encoding"="none"}]'],
            ),
            progress=False,
        )


def test_a_finished_comparison_is_read_again(path):
    first = json.loads(compare(read_recipe(path), progress=False).read_text())
    again = json.loads(compare(read_recipe(path), progress=False).read_text())
    assert [row["loss"] for row in first["rows"]] == [row["loss"] for row in again["rows"]]
