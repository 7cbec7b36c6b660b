"""Encoders with a memory are trained on texts that are longer than their tables, by the ordinary Trainer."""

import pytest
import torch
from transformers import AutoModelForMaskedLM

from wordorder.errors import BadInput
from wordorder.inference import classify, evaluate_model_dir, fill_mask
from wordorder.inference.saved_model import load_tokenizer_of
from wordorder.training import read_recipe, run

DOCUMENTS = (
    "model.encoding=learned",
    "model.memory=look-ahead",
    "model.memory_length=16",
    "model.segment_length=16",
    "model.num_hidden_layers=2",
)


@pytest.mark.parametrize("memory", ["segment-recurrence", "look-ahead"])
def test_masked_texts_longer_than_the_table_are_learned_scored_and_filled(shared_recipe_file, corpus, memory):
    recipe = read_recipe(
        shared_recipe_file, [*DOCUMENTS, f"model.memory={memory}", "data.length=100", "training.max_steps=3"]
    )
    result = run(recipe, progress=False, output_dir=shared_recipe_file.parent / f"documents-{memory}")
    model = AutoModelForMaskedLM.from_pretrained(result.model_dir)
    assert model.config.memory == memory
    assert model.config.max_position_embeddings == 32
    assert result.metrics["tokens"] > 3 * 4 * 32
    found = evaluate_model_dir(result.model_dir, f"{corpus}/*/*.txt")
    assert found == pytest.approx(result.metrics["test"], rel=1e-6)
    tokenizer = load_tokenizer_of(result.model_dir)
    text = f"{(corpus / 'left' / '00.txt').read_text()} {tokenizer.mask_token}"
    assert len(tokenizer(text)["input_ids"]) > 100
    (answers,) = fill_mask(result.model_dir, [text], top_k=2)
    assert len(answers) == 2


def test_whole_texts_are_classified(shared_recipe_file):
    recipe = read_recipe(
        shared_recipe_file,
        [*DOCUMENTS, "task.name=classification", "data.validation_fraction=0.2", "data.length=150"],
    )
    result = run(recipe, progress=False, output_dir=shared_recipe_file.parent / "whole-texts")
    (early,), (late,) = (classify(result.model_dir, [f"{'cab ' * n}{end}"]) for n, end in ((60, "a"), (60, "j")))
    assert len(early) == 3
    assert early != late  # it is not cut at 32 tokens


def test_the_length_is_that_of_the_table_where_nobody_says(shared_recipe_file):
    assert read_recipe(shared_recipe_file, DOCUMENTS).data.length == 32
    with pytest.raises(BadInput, match=r"memory_length \+ segment_length = 40 is longer than the position table"):
        read_recipe(shared_recipe_file, [*DOCUMENTS, "model.segment_length=24"])


@pytest.mark.parametrize("smoothing", ["0", "0.1"])
def test_the_weights_of_a_memory_learn_also_where_labels_are_smoothed(shared_recipe_file, smoothing):
    settings = [
        *DOCUMENTS, "model.memory=compressive", "model.memory_options={rate = 2}", "data.length=100",
        "training.max_steps=3", f"training.label_smoothing={smoothing}",
    ]  # fmt: skip
    folder = shared_recipe_file.parent / f"compressive-{smoothing}"
    result = run(read_recipe(shared_recipe_file, settings), progress=False, output_dir=folder)
    weights = AutoModelForMaskedLM.from_pretrained(result.model_dir).model.encoder.memory_weights
    width = weights[0].out_features
    assert not torch.equal(weights[0].weight, torch.eye(width).repeat(1, 2) / 2)
