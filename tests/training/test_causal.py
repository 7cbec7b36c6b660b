"""Causal language models from recipe to scores."""

import math

import pytest
import torch
from documents import read_documents, settings, split_documents
from torch.nn import functional
from transformers import AutoModelForCausalLM

from wordorder.errors import BadInput
from wordorder.inference import evaluate_model_dir
from wordorder.inference.predict import answer
from wordorder.training import read_recipe, run

CAUSAL = (
    "task.name=causal-lm",
    "model.network=decoder",
    "model.encoding=rope",
    "tokenizer.kind=byte",
    "data.limit_documents=8",
    "model.tie_word_embeddings=false",
)


@pytest.fixture(scope="session")
def trained(shared_recipe_file):
    recipe = read_recipe(shared_recipe_file, [*CAUSAL, "training.max_steps=20"])
    return run(recipe, progress=False, output_dir=shared_recipe_file.parent / "causal")


def test_scores_are_those_of_a_loop_over_the_text(trained, corpus):
    """Each token is predicted from the tokens before it in its segment, and every byte of the text is a token."""
    model = AutoModelForCausalLM.from_pretrained(trained.model_dir).double().eval()
    pair = settings(source=f"{corpus}/*/*.txt", task="causal-lm", limit_documents=8)
    texts = [document.text for document in split_documents(read_documents(pair), pair).test]
    from wordorder.inference.saved_model import load_tokenizer_of

    tokenizer = load_tokenizer_of(trained.model_dir)
    running = [
        token
        for text in texts
        for token in (*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.sep_token_id)
    ]
    total = 0.0
    for start in range(0, len(running), 31):
        segment = torch.tensor([[tokenizer.cls_token_id, *running[start : start + 31]]])
        with torch.no_grad():
            logits = model(input_ids=segment).logits[0]
        total += float(functional.cross_entropy(logits[:-1], segment[0, 1:], reduction="sum"))
    test = trained.metrics["test"]
    assert test["tokens"] == len(running)
    assert test["loss"] == pytest.approx(total / len(running), rel=1e-5)
    assert test["perplexity"] == pytest.approx(math.exp(total / len(running)), rel=1e-4)
    assert test["bits_per_character"] == pytest.approx(total / math.log(2) / sum(map(len, texts)), rel=1e-5)
    assert test["word_perplexity"] == pytest.approx(math.exp(total / sum(len(t.split()) for t in texts)), rel=1e-4)
    assert test["loss"] < trained.curve[0]["loss"]


def test_evaluation_gives_the_scores_of_the_run_whatever_the_batches(trained, corpus):
    for batch_size in (1, 50):
        found = evaluate_model_dir(trained.model_dir, f"{corpus}/*/*.txt", batch_size=batch_size)
        assert found == pytest.approx(trained.metrics["test"], rel=1e-5)
    whole = evaluate_model_dir(trained.model_dir, f"{corpus}/*/*.txt", split="all")
    assert whole["bits_per_character"] == pytest.approx(trained.metrics["test"]["bits_per_character"], rel=0.1)


def test_smoothed_labels_teach_the_next_token_not_the_same_one(recipe_file):
    """A model that was taught to repeat its input would have a validation loss far above that of guessing."""
    settings = [*CAUSAL, "training.label_smoothing=0.1", "training.max_steps=40", "training.learning_rate=1e-2"]
    curve = run(read_recipe(recipe_file, settings), progress=False).curve
    scored = [row["validation_loss"] for row in curve if "validation_loss" in row]
    assert scored[-1] < 3.2 < scored[0] + 1


def test_a_language_model_neither_fills_masks_nor_classifies(trained):
    with pytest.raises(BadInput, match="goes on with a text"):
        answer(trained.model_dir, ["a"])


def test_a_language_model_goes_on_with_the_head_of_another(trained, recipe_file):
    recipe = recipe_file.read_text()
    section = recipe[recipe.index("[tokenizer]") : recipe.index("[training]")]
    recipe_file.write_text(recipe.replace(section, f'[model]\npretrained = "{trained.model_dir}"\n'))
    settings = ["task.name=causal-lm", "data.limit_documents=8", "training.max_steps=1", "training.learning_rate=1e-9"]
    result = run(read_recipe(recipe_file, settings), progress=False)
    assert result.metrics["test"]["loss"] == pytest.approx(trained.metrics["test"]["loss"], rel=1e-4)
