"""Build the configuration of a run's model, and load the weights that it starts from."""

import os
from pathlib import Path
from typing import Any

from wordorder.data import PreparedData, RunningText
from wordorder.data.tokenizers.tokenizer import adds_special_tokens
from wordorder.errors import BadInput
from wordorder.models import build_config, config_fields
from wordorder.tasks import TASKS
from wordorder.training.checkpoints.weights import load_body
from wordorder.training.recipe.pretrained import saved_version, weights_content
from wordorder.training.recipe.recipe import Recipe


def make_config(recipe: Recipe, prepared: PreparedData) -> Any:
    """Build the model's configuration: the recipe's fields, completed by the vocabulary, classes and ids of the data."""
    tokens = prepared.statistics["vocab_size"]  # not len(tokenizer): an existing tokenizer's numbers may have holes
    known: dict[str, Any] = {"vocab_size": tokens, "pad_token_id": prepared.tokenizer.pad_token_id}
    if recipe.pretrained is None and adds_special_tokens(prepared.tokenizer):  # every text begins with [CLS]
        known["cls_token_id"] = prepared.tokenizer.cls_token_id
    if prepared.label_names:
        known["id2label"] = dict(enumerate(prepared.label_names))
        known["label2id"] = {name: number for number, name in enumerate(prepared.label_names)}
        known["num_labels"] = len(prepared.label_names)
    task = TASKS[recipe.data.task]
    known |= task.model_fields(prepared)
    if task.writes:
        # What generation starts and ends with: every text is [CLS] text [SEP], but in lanes [SEP] alone parts texts.
        in_lanes = isinstance(prepared.validation, RunningText)
        end = prepared.tokenizer.sep_token_id
        start = end if in_lanes else prepared.tokenizer.cls_token_id
        ends = {"bos_token_id": start, "decoder_start_token_id": start, "eos_token_id": end}
        if recipe.model.get("memory", "none") != "none":
            ends["segment_length"] = recipe.segment_length
        known |= {name: value for name, value in ends.items() if name in config_fields(recipe.network)}
    fields = {**known, **saved_version(recipe.pretrained), **recipe.model}
    if fields["vocab_size"] < tokens:
        raise BadInput(f"model.vocab_size: must be at least the tokenizer's {tokens}, got {fields['vocab_size']}")
    return build_config(recipe.network, **fields)


def start_from_saved_model(model: Any, recipe: Recipe) -> dict[str, Any]:
    """Load the body of the saved model, and return its folder and which weights are loaded, new and unused."""
    folder = Path(str(recipe.pretrained))
    found = load_body(model, folder, with_head=TASKS[recipe.data.task].predicts_tokens)
    return {
        "folder": str(folder),
        "content": weights_content(folder),
        "loaded": len(found.loaded),
        "new": list(found.new),
        "unused": list(found.unused),
    }


def start_from_word_vectors(model: Any, prepared: PreparedData) -> str | None:
    """Load the word vectors that the configuration names (`model.word_vectors`), and say in words what was found."""
    named = getattr(model.config, "word_vectors", None)
    if named is None:
        return None
    folder = os.environ.get("WORDORDER_DATA")
    places = [Path(named), *([] if folder is None else [Path(folder) / named])]
    path = next((place for place in places if place.exists()), None)
    if path is None:
        raise BadInput(f"model.word_vectors: there is no file {' or '.join(str(place) for place in places)}")
    try:
        found = model.load_word_vectors(path, prepared.tokenizer.get_vocab())
    except ValueError as error:
        raise BadInput(f"model.word_vectors: {error}") from None
    return f"word vectors from {path}: {len(found.ids)} words found, {found.missing} of the vocabulary not"
