"""Describe a corpus before anything is trained on it, as `wordorder data` does."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordorder.data.cache import default_cache_dir
from wordorder.data.config import DataConfig, token_faults
from wordorder.data.documents import read_and_count
from wordorder.data.examples.encode import encode_documents
from wordorder.data.quality.reading_log import ReadingLog
from wordorder.data.quality.same_text import Duplicates, HeldOut
from wordorder.data.settings import TokenizerConfig
from wordorder.data.split import split_documents, training_texts
from wordorder.data.streaming.stream import first_texts
from wordorder.data.streaming.texts import open_source
from wordorder.data.tokenizers.tokenizer import load_tokenizer
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_AT_A_TIME = 512  # texts of a stream that are encoded together


def describe(
    data: DataConfig,
    tokenizer: TokenizerConfig,
    *,
    examples: int = 3,
    documents: int | None = None,
    cache_dir: Path | None = None,
) -> dict[str, Any]:
    """Count documents, tokens and lengths, and look for duplicates within and between splits.

    Args:
        tokenizer: trained on train, as for training.
        examples: to show for each pair of splits.
        documents: of a streamed source, how many of the first ones; None: all.

    Returns:
        splits: split -> documents, characters, words, tokens, and tokens_per_document, a table of min, median, 95%, max
        and mean. dropped_duplicates and dropped_empty as in `PreparedData.statistics`; passed_over, see
        `ReadingLog.summary`; vocab_size; and what `Duplicates.report` gives, without any texts for a generated
        task.

    Raises:
        BadInput: as `prepare`.
    """
    faults = token_faults(data, tokenizer)
    if faults:
        raise BadInput(faults)
    cache_dir = default_cache_dir() if cache_dir is None else cache_dir
    log, found = ReadingLog(skip=data.skip_unreadable), Duplicates()
    read, dropped_empty = read_and_count(data, log)
    split = split_documents(read, data)
    parts: dict[str, Iterable[str]] = {
        name: [f"{document.text} {document.pair or ''}".strip() for document in part]
        for name, part in split.parts().items()
        if part and not (name == "validation" and split.validation is split.test)
    }
    if data.streaming:
        held_out = HeldOut({name: part for name, part in split.parts().items() if part})
        first = list(first_texts(data, held_out, data.tokenizer_documents)) if data.tokenizer_documents else []
        source = open_source(data, log, seed=None)
        streamed = (text.text for text in source.texts(source.start(0)) if text.text is not None)
        parts = {"train": islice(streamed, documents), **parts}
    else:
        first = training_texts(split)
    trained = load_tokenizer(tokenizer, first, cache_dir=cache_dir)
    # generated texts are drawn apart, and all are nearly the same: strings of few words
    sought = found if data.generated is None else None
    splits = {name: _numbers(name, texts, trained, sought, cache_dir) for name, texts in parts.items()}
    if data.streaming and not splits["train"]["documents"]:
        raise BadInput(f"data.source {data.source} has no text")
    return {
        "splits": splits,
        "dropped_duplicates": split.dropped_duplicates,
        "dropped_empty": dropped_empty,
        "passed_over": log.summary(),
        "vocab_size": len(trained),
        **found.report(examples=examples),
    }


def _numbers(
    name: str, texts: Iterable[str], tokenizer: "PreTrainedTokenizerFast", found: Duplicates | None, cache_dir: Path
) -> dict[str, Any]:
    lengths: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    characters = words = 0
    kept = cache_dir if isinstance(texts, list) else None  # of a stream it would be another cut than training's
    rest = iter(texts)
    while held := list(rest) if kept is not None else list(islice(rest, _AT_A_TIME)):
        for text in held:
            if found is not None:
                found.add(name, text)
            characters += len(text)
            words += len(text.split())
        encoded = encode_documents(held, tokenizer, cache_dir=kept)
        lengths.append(np.diff(encoded.borders))
    tokens = np.concatenate([np.zeros(0, np.int64), *lengths])
    values = np.percentile(tokens, [0, 50, 95, 100], method="lower").tolist() if len(tokens) else [0] * 4
    table = dict(zip(("min", "median", "95%", "max"), values, strict=True))
    return {
        "documents": len(tokens),
        "characters": characters,
        "words": words,
        "tokens": int(tokens.sum()),
        "tokens_per_document": {**table, "mean": round(tokens.mean(), 1) if len(tokens) else 0.0},
    }
