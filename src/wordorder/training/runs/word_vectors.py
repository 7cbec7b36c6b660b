"""Start training from word vectors that were trained elsewhere (`model.word_vectors`)."""

import os
from pathlib import Path
from typing import Any

from wordorder.data import PreparedData
from wordorder.errors import BadInput


def start_from_word_vectors(model: Any, prepared: PreparedData) -> str | None:
    """Load the word vectors of the file that the configuration names into the embeddings.

    Args:
        model: its weights are drawn already.
        prepared: gives the words.

    Returns:
        What was found, in words; None where the configuration names no file.

    Raises:
        BadInput: there is no such file, or it is not what it should be.
    """
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
