"""Encode texts as token ids, shard by shard through the cache.

A shard holds encoded documents in a file of bounded size: named by their content, checked by a checksum, mapped.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wordorder.data.cache import content_hash, write_cached

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Ids = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]

SHARD = 2**22
"""Characters after which a shard ends: about a million tokens of words, 4 MB."""

_FORMAT = "2"  # version of the file and of the sentence borders: raise it when either changes
_ARRAYS = {"ids": np.int32, "sentence_starts": np.int64, "document_starts": np.int64}
_CHUNK = 4096  # sentences between two reports of progress: about 0.1 s

# After . ! ? and a closing quote or bracket, before white space and anything but a small letter; after the full-width
# marks of Chinese and Japanese, which no space follows; and at blank lines.
_SENTENCE_BORDER = re.compile(
    r"""(?:(?<=[.!?])|(?<=[.!?]["')\]\u201d\u2019]))(?=\s+[^\sa-z])"""
    r"|(?<=[\u3002\uff01\uff1f])(?=[^\s\u3002\uff01\uff1f])"
    r"|(?<=\S)(?=[^\S\n]*\n\s*\n)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDocuments:
    """The tokens of many documents, without special tokens: one flat array, and borders in it."""

    ids: Ids
    sentence_starts: Integers
    """The start of each sentence in `ids`, and at last the end of `ids`, shape (sentences + 1,)."""
    document_starts: Integers
    """The start of each document in `sentence_starts`, and at last its end, shape (documents + 1,)."""

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    @property
    def borders(self) -> Integers:
        """The start of each document in `ids`, and at last its end, shape (documents + 1,)."""
        return self.sentence_starts[self.document_starts]

    def sentences(self, document: int) -> Integers:
        """Return where the sentences of a document begin in `ids`, and at last its end."""
        return self.sentence_starts[self.document_starts[document] : self.document_starts[document + 1] + 1]

    def tokens(self, document: int) -> Ids:
        borders = self.sentences(document)
        return self.ids[borders[0] : borders[-1]]


def starts_of(lengths: Sequence[int] | Integers) -> Integers:
    """Return where pieces of these lengths begin in a row, and at last the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


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

    The cache holds shards of whole documents: interrupted encoding goes on where it stopped, a text that has changed
    costs the shards that hold it, and a damaged shard is encoded again. One shard alone is mapped, not read.

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
        part, path, shard = texts[first:end], None, None
        if cache_dir is not None:
            path = cache_dir / "encoded" / f"{content_hash([_FORMAT, state, *part])}.safetensors"
            shard = read_shard(path, documents=len(part), vocabulary=vocabulary)
        if shard is None:
            shard = _encode(part, state, lambda more, before=done: progress(before + more, total))
            if path is not None:
                write_shard(path, shard)
        done += sum(map(len, part))
        shards.append(shard)
    if len(shards) == 1:
        return shards[0]
    return EncodedDocuments(
        ids=np.concatenate([shard.ids for shard in shards]),
        sentence_starts=starts_of(np.concatenate([np.diff(shard.sentence_starts) for shard in shards])),
        document_starts=starts_of(np.concatenate([np.diff(shard.document_starts) for shard in shards])),
    )


def _shard_borders(texts: Sequence[str]) -> list[tuple[int, int]]:
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
    pieces: list[Ids] = []
    done = 0
    for start in range(0, len(flat), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        encodings = encoder.encode_batch_fast(chunk, add_special_tokens=False)
        pieces += [np.asarray(encoding.ids, dtype=np.int32) for encoding in encodings]
        done += sum(map(len, chunk))
        progress(done)
    return EncodedDocuments(
        ids=np.concatenate([np.empty(0, np.int32), *pieces]),
        sentence_starts=starts_of([len(piece) for piece in pieces]),
        document_starts=starts_of([len(document) for document in sentences]),
    )


def write_shard(path: Path, encoded: EncodedDocuments) -> None:
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(getattr(encoded, name)) for name in _ARRAYS}
    write_cached(path, save(arrays, metadata={"blake2b": _checksum(arrays.values())}))


def read_shard(path: Path, *, documents: int, vocabulary: int) -> EncodedDocuments | None:
    """Map a shard into memory: None where there is none, or it is not as it was written, or does not fit."""
    from safetensors import SafetensorError, safe_open

    opener: Any = safe_open  # its type lacks the methods of what it opens
    try:
        # as torch tensors: these are mapped, where arrays of NumPy would be read
        with opener(path, "pt") as file:
            if set(file.keys()) != set(_ARRAYS):
                return None
            written: Any = file.metadata()["blake2b"]
            arrays: dict[str, npt.NDArray[Any]] = {name: file.get_tensor(name).numpy() for name in _ARRAYS}
    except (OSError, SafetensorError, KeyError, TypeError):
        return None
    if {name: array.dtype for name, array in arrays.items()} != _ARRAYS or _checksum(arrays.values()) != written:
        return None
    if any(array.ndim != 1 for array in arrays.values()):
        return None
    for array in arrays.values():
        array.flags.writeable = False
    encoded = EncodedDocuments(**arrays)
    ids, sentences, borders = encoded.ids, encoded.sentence_starts, encoded.document_starts
    sound = (
        len(borders) == documents + 1
        and _are_borders(borders, len(sentences) - 1)
        and _are_borders(sentences, len(ids))
        and (not len(ids) or (ids.min() >= 0 and ids.max() < vocabulary))
    )
    return encoded if sound else None


def _checksum(arrays: Iterable[npt.NDArray[Any]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()


def _are_borders(borders: Integers, end: int) -> bool:
    return len(borders) > 0 and borders[0] == 0 and borders[-1] == end and bool((np.diff(borders) >= 0).all())
