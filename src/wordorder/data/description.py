"""Describe a corpus before anything is trained on it, as `wordorder data` does."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordorder.data.cache import default_cache_dir
from wordorder.data.config import DataConfig, token_faults
from wordorder.data.documents import read_and_count
from wordorder.data.examples.encode import encode_documents
from wordorder.data.quality.reading_log import ReadingLog
from wordorder.data.quality.same_text import Duplicates
from wordorder.data.settings import TokenizerConfig
from wordorder.data.split import split_documents, training_texts
from wordorder.data.tokenizers.tokenizer import load_tokenizer
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def describe(
    data: DataConfig, tokenizer: TokenizerConfig, *, examples: int = 3, cache_dir: Path | None = None
) -> dict[str, Any]:
    """Count documents, tokens and lengths, and look for duplicates within and between splits.

    Args:
        tokenizer: trained on train, as for training.
        examples: to show for each pair of splits.

    Returns:
        splits: split -> documents, characters, words, tokens, unknown_fraction, and tokens_per_document, a table of
        min, median, 95%, max and mean. dropped_duplicates and dropped_empty as in `PreparedData.statistics`;
        passed_over, see `ReadingLog.summary`; vocab_size; and what `Duplicates.report` gives, without any texts for a
        generated task.

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
    parts = {
        name: [f"{document.text} {document.pair or ''}".strip() for document in part]
        for name, part in split.parts().items()
        if part and not (name == "validation" and split.validation is split.test)
    }
    trained = load_tokenizer(tokenizer, training_texts(split), cache_dir=cache_dir)
    # generated texts are drawn apart, and all are nearly the same: strings of few words
    sought = found if data.generated is None else None
    splits = {name: _numbers(name, texts, trained, sought, cache_dir) for name, texts in parts.items()}
    return {
        "splits": splits,
        "dropped_duplicates": split.dropped_duplicates,
        "dropped_empty": dropped_empty,
        "passed_over": log.summary(),
        "vocab_size": len(trained),
        **found.report(examples=examples),
    }


def _numbers(
    name: str, texts: list[str], tokenizer: "PreTrainedTokenizerFast", found: Duplicates | None, cache_dir: Path
) -> dict[str, Any]:
    if found is not None:
        for text in texts:
            found.add(name, text)
    encoded = encode_documents(texts, tokenizer, cache_dir=cache_dir)
    tokens = np.diff(encoded.borders)
    unknown: object = tokenizer.unk_token_id  # None, which no token is, where there is no [UNK]
    values = np.percentile(tokens, [0, 50, 95, 100], method="lower").tolist() if len(tokens) else [0] * 4
    table = dict(zip(("min", "median", "95%", "max"), values, strict=True))
    return {
        "documents": len(tokens),
        "characters": sum(map(len, texts)),
        "words": sum(len(text.split()) for text in texts),
        "tokens": int(tokens.sum()),
        "unknown_fraction": float((encoded.ids == unknown).sum()) / max(1, len(encoded.ids)),
        "tokens_per_document": {**table, "mean": round(tokens.mean(), 1) if len(tokens) else 0.0},
    }
