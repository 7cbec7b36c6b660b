"""Real runs on one fold: the scores that are written are those of the part that the protocol names."""

import json

import pytest

from wordorder.inference.evaluate import evaluate_model_dir
from wordorder.training import read_recipe, run
from wordorder.training.loop.evaluation import Evaluation


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    path = tmp_path_factory.mktemp("reviews") / "all.jsonl"
    rows = [{"text": f"it 's a {('dull', 'fine')[i % 2]} film {i % 7} , {i}", "label": i % 2} for i in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def train(reviews, folder, *overrides, progress=False):
    text = f"""
[data]
source = "{reviews}"
folds = 5
fold = 2
validation_fraction = 0.1

[task]
name = "classification"
[tokenizer]
kind = "whitespace"
min_frequency = 2
add_special_tokens = false
[model]
network = "encoder"
encoding = "rope"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 16
hidden_dropout_prob = 0.0
[training]
output_dir = "{folder}"
epochs = 3
batch_size = 16
learning_rate = 0.01
evaluate_every = "epoch"
select = "accuracy"
trackers = []
device = "cpu"
"""
    path = folder.parent / f"{folder.name}.toml"
    path.write_text(text)
    return run(read_recipe(path, overrides), progress=progress)


def test_a_fold_is_trained_tested_and_scored_again(reviews, tmp_path):
    result = train(reviews, tmp_path / "run")
    assert (result.metrics["validation"]["examples"], result.metrics["test"]["examples"]) == (6, 12)
    again = evaluate_model_dir(result.model_dir, str(reviews))
    assert again["loss"] == pytest.approx(result.metrics["test"]["loss"], rel=1e-5)
    assert evaluate_model_dir(result.model_dir, str(reviews), split="all")["examples"] == 60


def test_the_best_checkpoint_on_the_held_out_part_is_what_counts(reviews, tmp_path):
    result = train(reviews, tmp_path / "run", "data.protocol=best-checkpoint-on-test")
    assert result.metrics["validation"] == result.metrics["test"]
    assert result.metrics["test"]["examples"] == 12
    seen = [row["validation_accuracy"] for row in result.curve if "validation_accuracy" in row]
    assert len(seen) == 3
    assert result.metrics["test"]["accuracy"] == max(seen)
    assert evaluate_model_dir(result.model_dir, str(reviews), split="all")["examples"] == 60


@pytest.mark.slow
def test_a_run_says_itself_that_its_score_is_optimistic(reviews, tmp_path, monkeypatch, capfd):
    scored = []
    original = Evaluation.scores_and_units
    monkeypatch.setattr(
        Evaluation,
        "scores_and_units",
        lambda self, dataset, **how: scored.append(self.training.active) or original(self, dataset, **how),
    )
    result = train(reviews, tmp_path / "run", "data.protocol=best-checkpoint-on-test", progress=True)
    assert result.metrics["optimistic"] is True
    assert scored.count(False) == 1  # the one part is not scored twice
    assert "optimistic test loss" in capfd.readouterr().err
    assert evaluate_model_dir(result.model_dir, str(reviews))["optimistic"] is True
    alone = train(reviews, tmp_path / "alone", "data.folds=5", "data.protocol=test-once")
    assert alone.metrics["optimistic"] is False
    assert "optimistic" not in evaluate_model_dir(alone.model_dir, str(reviews))


def test_another_source_is_scored_as_it_is(reviews, tmp_path):
    result = train(reviews, tmp_path / "run")
    (tmp_path / "other").mkdir()
    lines = reviews.read_text().splitlines()
    for name, part in (("train", lines[:30]), ("test", lines[30:51])):
        (tmp_path / "other" / f"{name}.jsonl").write_text("\n".join(part) + "\n")
    # the run's folds would refuse a source with splits of its own
    other = str(tmp_path / "other")
    assert evaluate_model_dir(result.model_dir, other)["examples"] == 51
    assert evaluate_model_dir(result.model_dir, other, split="test")["examples"] == 21
