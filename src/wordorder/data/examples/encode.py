"""Encode texts as token ids, shard by shard through the cache."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from wordorder.data.examples.encoded import EncodedDocuments, Integers
from wordorder.data.shards import SHARD, read_shard, shard_name, write_shard

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CHUNK = 4096  # sentences between two reports of progress: about 0.1 s

# After . ! ? and a closing quote or bracket, before white space and anything but a small letter; after the full-width
# marks of Chinese and Japanese, which no space follows; and at blank lines.
_SENTENCE_BORDER = re.compile(
    r"""(?:(?<=[.!?])|(?<=[.!?]["')\]\u201d\u2019]))(?=\s+[^\sa-z])"""
    r"|(?<=[\u3002\uff01\uff1f])(?=[^\s\u3002\uff01\uff1f])"
    r"|(?<=\S)(?=[^\S\n]*\n\s*\n)"
)


def split_sentences(text: str) -> list[str]:
    """Cut a text into sentences; joined they are the text again, white space included (it leads a sentence).

    A simple rule for scripts that end sentences with . ! ? or their full-width forms, and for blank lines. It also cuts
    after abbreviations before a capital ("Mr. Smith") and never inside text without punctuation. For packing neither
    does harm: a sentence is only a place where a segment may end.
    """
    return _SENTENCE_BORDER.split(text)


def encode_documents(
    texts: Sequence[str],
    tokenizer: "PreTrainedTokenizerFast",
    *,
    cache_dir: Path | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> EncodedDocuments:
    """Encode texts sentence by sentence, or take what is there from the cache.

    The cache holds shards: whole documents one after another, until they have `SHARD` characters. Each is a file named
    by a hash of the tokeniser and of its texts, written whole or not at all, with a checksum of what is in it. So
    encoding that was interrupted goes on at the shard where it stopped, a text that has changed costs the shards that
    hold it, and a damaged shard is encoded again. A result of one shard is not read into memory but mapped.

    A special token's name inside a text ("[MASK]") is encoded as the characters that it is, never as the token.

    Args:
        cache_dir: shards are kept in its folder `encoded`; None keeps nothing.
        progress: called with the number of characters done and in all.
    """
    state = tokenizer.backend_tokenizer.to_str()
    vocabulary = max(tokenizer.get_vocab().values()) + 1
    total, done = sum(map(len, texts)), 0
    shards: list[EncodedDocuments] = []
    for first, end in _shard_borders(texts):
        part = texts[first:end]
        path = None if cache_dir is None else cache_dir / "encoded" / f"{shard_name(part, state)}.safetensors"
        shard = None if path is None else read_shard(path, documents=len(part), vocabulary=vocabulary)
        if shard is None:
            shard = _encode(part, state, lambda more, before=done: progress(before + more, total))
            if path is not None:
                write_shard(path, shard)
        done += sum(map(len, part))
        shards.append(shard)
    return shards[0] if len(shards) == 1 else _joined(shards)


def _shard_borders(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return (first document, end) of each shard: a pure function of the texts before its end."""
    borders, size = [0], 0
    for number, text in enumerate(texts, start=1):
        size += len(text)
        if size >= SHARD:
            borders.append(number)
            size = 0
    if borders[-1] != len(texts) or len(borders) == 1:
        borders.append(len(texts))
    return list(pairwise(borders))


def _encode(texts: Sequence[str], state: str, progress: Callable[[int], None]) -> EncodedDocuments:
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_str(state)
    encoder.no_padding()
    encoder.no_truncation()
    encoder.encode_special_tokens = True
    sentences = [split_sentences(text) for text in texts]
    flat = [sentence for document in sentences for sentence in document]
    pieces: list[npt.NDArray[np.int32]] = []
    done = 0
    for start in range(0, len(flat), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        encodings = encoder.encode_batch_fast(chunk, add_special_tokens=False)
        pieces += [np.asarray(encoding.ids, dtype=np.int32) for encoding in encodings]
        done += sum(map(len, chunk))
        progress(done)
    return EncodedDocuments(
        ids=np.concatenate([np.empty(0, np.int32), *pieces]),
        sentence_starts=_starts([len(piece) for piece in pieces]),
        document_starts=_starts([len(document) for document in sentences]),
    )


def _starts(lengths: list[int]) -> Integers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _joined(shards: Sequence[EncodedDocuments]) -> EncodedDocuments:
    """Join shards, one after another, into one."""
    return EncodedDocuments(
        ids=np.concatenate([shard.ids for shard in shards]),
        sentence_starts=_one_after_another([shard.sentence_starts for shard in shards]),
        document_starts=_one_after_another([shard.document_starts for shard in shards]),
    )


def _one_after_another(borders: Sequence[Integers]) -> Integers:
    return _starts([length for starts in borders for length in np.diff(starts).tolist()])
