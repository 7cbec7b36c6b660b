"""Runs on generated tasks: the thesis of the complex-order paper, and what is done with a model afterwards."""

from pathlib import Path

import pytest

from wordorder.errors import BadInput
from wordorder.inference import evaluate_model_dir
from wordorder.inference.predict import answer
from wordorder.training import read_recipe, run

RECIPE = Path(__file__).resolve().parents[2] / "evidence" / "recipes" / "order_binding.toml"
SMALL = """
[data]
source = "task:{name}"
train_examples = 300
test_examples = 30
train_lengths = [6, 9]
test_lengths = [10, 14]
length = {length}

[task]
name = "causal-lm"
{more}
[tokenizer]
kind = "whitespace"
[model]
network = "decoder"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 64
{model}
[training]
max_steps = 6
batch_size = 4
learning_rate = 1e-3
select = "exact_match"
device = "cpu"
"""


@pytest.mark.slow
@pytest.mark.parametrize(("arm", "low", "high"), [("none", 0.4, 0.6), ("complex-order", 0.95, 1.0)])
def test_a_bag_of_words_knows_order_by_complex_order_alone(tmp_path, arm, low, high):
    recipe = read_recipe(RECIPE, ["training.max_steps=500", "training.device=cpu"])
    own = next(one for one in recipe.compare.arms if one.name == arm)
    found = run(recipe.for_arm(own), output_dir=tmp_path / arm, progress=False)
    assert low <= found.metrics["test"]["accuracy"] <= high


def trained(tmp_path, name, more="", model='encoding = "rope"', length=64):
    (tmp_path / "small.toml").write_text(SMALL.format(name=name, more=more, model=model, length=length))
    return run(read_recipe(tmp_path / "small.toml"), output_dir=tmp_path / "run", progress=False)


def test_answers_are_trained_scored_and_written(tmp_path):
    found = trained(tmp_path, "reverse")
    assert {"loss", "accuracy", "exact_match", "answers"} <= set(found.metrics["test"])
    assert found.metrics["test"]["answers"] == 30
    measured = [row["validation_exact_match"] for row in found.curve if "validation_exact_match" in row]
    assert len(measured) > 1
    again = evaluate_model_dir(found.model_dir, "task:reverse")
    assert again == pytest.approx(found.metrics["test"], rel=1e-5)
    # another task has lengths of its own
    with pytest.raises(BadInput, match=r"data\.length 64 is too short for task:duplicate"):
        evaluate_model_dir(found.model_dir, "task:duplicate")
    texts = answer(found.model_dir, ["a b a", "b"])
    assert all(set(one["answer"].split()) <= {"a", "b"} for (one,) in texts)
    with pytest.raises(BadInput, match=r"text has 72 tokens, data\.length is 64; shorten it"):
        answer(found.model_dir, ["a " * 70])
    card = (found.model_dir / "README.md").read_text()
    assert "task:reverse" in card


def test_a_written_answer_of_one_word_is_one_word(tmp_path):
    found = trained(tmp_path, "parity")
    assert [len(one["answer"].split()) <= 1 for (one,) in answer(found.model_dir, ["a b a", "b"])] == [True, True]


@pytest.mark.parametrize("memory", [True, False])
def test_lanes_of_a_generated_task_with_and_without_memory(tmp_path, memory):
    more = 'packing = "lanes"\nreset_memory = "documents"'
    kind = 'memory = "look-ahead"\nmemory_length = 16\nencoding = "transformer-xl"' if memory else 'encoding = "rope"'
    found = trained(tmp_path, "late-instruction", more, kind, length=8)
    assert found.metrics["test"]["answers"] == found.metrics["test"]["tokens"] == 30
    assert found.metrics["validation"]["answers"] == 30
    # steps in which no answer stands have no loss, and that is no failure
    assert 0.0 in [row["loss"] for row in found.curve if "loss" in row]
    assert evaluate_model_dir(found.model_dir, "task:late-instruction")["answers"] == 30
