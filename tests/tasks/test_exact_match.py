"""The share of outputs that are exactly right, from the count to a run on commands like SCAN's."""

import pytest
import torch

from wordorder.comparison.results_file import parse_results
from wordorder.comparison.statistics.summary import lower_is_better, metric_of, quality_of
from wordorder.errors import BadInput
from wordorder.tasks.scores import TranslationTally
from wordorder.training import read_recipe, run

CPU = torch.device("cpu")


def test_right_from_beginning_to_end_counts_and_nothing_else():
    tally = TranslationTally(CPU)
    tally.add_translations(
        ["I_RUN I_RUN", "I_RUN", "I_WALK  I_RUN ", ""], ["I_RUN I_RUN", "I_RUN I_RUN", "I_WALK I_RUN", "x"]
    )
    tally.add_translations(["i_run"], ["I_RUN"])
    assert tally.scores()["exact_match"] == 2 / 5


def test_counts_of_processes_are_added():
    mine, theirs = TranslationTally(CPU), TranslationTally(CPU)
    mine.add_translations(["a", "b"], ["a", "c"])
    theirs.add_translations(["d"], ["d"])
    others = iter((theirs._loss, theirs._correct, theirs._count, theirs._counts))
    mine.reduce(lambda tensor: tensor + next(others), lambda rows: rows)
    assert mine.scores()["exact_match"] == 2 / 3


RECIPE = """
[data]
source = "{folder}"
length = 12
validation_fraction = 0.1

[task]
name = "translation"
beams = 1
translate_while_training = true
[tokenizer]
kind = "whitespace"
[model]
network = "seq2seq"
hidden_size = 32
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 16
encoding = "learned"
[training]
output_dir = "{folder}/run"
max_steps = 60
batch_size = 8
learning_rate = 1e-2
evaluate_every = 0.5
trackers = []
device = "cpu"
select = "exact_match"
"""


@pytest.fixture
def recipe_file(tmp_path):
    verbs, times = ("walk", "run", "look", "jump"), {"": 1, " twice": 2, " thrice": 3}
    rows = [f"IN: {v}{t} OUT: {' '.join([f'I_{v.upper()}'] * n)}\n" for v in verbs for t, n in times.items()]
    (tmp_path / "tasks_train_simple.txt").write_text("".join(rows[:-2]))
    (tmp_path / "tasks_test_simple.txt").write_text("".join(rows[-2:]))
    (tmp_path / "scan.toml").write_text(RECIPE.format(folder=tmp_path))
    return tmp_path / "scan.toml"


def test_a_run_chooses_its_checkpoint_by_it(recipe_file):
    recipe = read_recipe(recipe_file)
    assert metric_of("translation", recipe.training.select) == "exact_match"
    found = run(recipe, progress=False)
    assert found.metrics["test"]["sentences"] == 2
    assert 0 <= found.metrics["test"]["exact_match"] <= 1
    measured = {row["step"]: row["validation_exact_match"] for row in found.curve if "validation_exact_match" in row}
    assert measured.keys() == {30, 60}
    assert measured[found.metrics["best_step"]] == max(measured.values())


def test_it_is_measured_while_training_only_with_translations(recipe_file):
    with pytest.raises(
        BadInput, match=r"exact_match is measured while training only with task\.translate_while_training"
    ):
        read_recipe(recipe_file, ["task.translate_while_training=false"])
    of_translation = "beams = 1\ntranslate_while_training = true\n"
    recipe_file.write_text(recipe_file.read_text().replace(of_translation, ""))
    with pytest.raises(BadInput, match="task masked-lm has no exact_match"):
        read_recipe(recipe_file, ["task.name=masked-lm", "model.network=encoder"])


def test_a_comparison_shows_it_as_it_is():
    least = {"name": "x", "recipe": {}, "arms": [], "planned": {"arms": 0, "seeds": [], "runs": 0}}
    quality = quality_of(parse_results({**least, "task": "translation", "metric": "exact_match"}))
    assert quality.name == "exact match"
    assert quality.higher_is_better
    assert not lower_is_better("exact_match")
