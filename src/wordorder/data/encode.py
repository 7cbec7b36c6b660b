"""Texts as token ids, kept compactly: one flat array and the borders of sentences and documents in it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wordorder.data.cache import content_hash, write_cached

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Integers = npt.NDArray[np.int64]

_CHUNK = 4096  # sentences between two reports of progress: about 0.1 s
_FORMAT = "1"  # of the cached file and of the sentence borders: raise it when either changes

# After . ! ? and a closing quote or bracket, before white space and anything but a small letter; after the full-width
# marks of Chinese and Japanese, which no space follows; and at blank lines.
_SENTENCE_BORDER = re.compile(
    r"""(?:(?<=[.!?])|(?<=[.!?]["')\]\u201d\u2019]))(?=\s+[^\sa-z])"""
    r"|(?<=[\u3002\uff01\uff1f])(?=[^\s\u3002\uff01\uff1f])"
    r"|(?<=\S)(?=[^\S\n]*\n\s*\n)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDocuments:
    """The tokens of many documents, without special tokens.

    Args:
        ids: tokens of all documents in a row, shape (tokens,).
        sentence_starts: where each sentence begins in `ids`, and at last the end of `ids`, shape (sentences + 1,).
        document_starts: where each document begins in `sentence_starts`, and at last its end, shape (documents + 1,).
    """

    ids: npt.NDArray[np.int32]
    sentence_starts: Integers
    document_starts: Integers

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    def sentences(self, document: int) -> Integers:
        """Return where the sentences of a document begin in `ids`, and at last its end."""
        return self.sentence_starts[self.document_starts[document] : self.document_starts[document + 1] + 1]

    def tokens(self, document: int) -> npt.NDArray[np.int32]:
        """Return the ids of a document."""
        borders = self.sentences(document)
        return self.ids[borders[0] : borders[-1]]


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
    cache_dir: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> EncodedDocuments:
    """Encode texts sentence by sentence, or take the result from the cache.

    A special token's name inside a text ("[MASK]") is encoded as the characters that it is, never as the token.

    Args:
        texts: one per document.
        tokenizer: its state is not changed.
        cache_dir: results are kept in its folder `encoded`.
        progress: called with the number of sentences done and in all.
    """
    from tokenizers import Tokenizer

    state = tokenizer.backend_tokenizer.to_str()
    path = cache_dir / "encoded" / f"{content_hash([_FORMAT, state, *texts])}.safetensors"
    cached = _read_cached(path, documents=len(texts), vocabulary=max(tokenizer.get_vocab().values()) + 1)
    if cached is not None:
        return cached
    encoder: Any = Tokenizer.from_str(state)
    encoder.no_padding()
    encoder.no_truncation()
    encoder.encode_special_tokens = True
    sentences = [split_sentences(text) for text in texts]
    flat = [sentence for document in sentences for sentence in document]
    pieces: list[npt.NDArray[np.int32]] = []
    for start in range(0, len(flat), _CHUNK):
        encodings = encoder.encode_batch_fast(flat[start : start + _CHUNK], add_special_tokens=False)
        pieces += [np.asarray(encoding.ids, dtype=np.int32) for encoding in encodings]
        progress(min(start + _CHUNK, len(flat)), len(flat))
    encoded = EncodedDocuments(
        ids=np.concatenate([np.empty(0, np.int32), *pieces]),
        sentence_starts=_starts([len(piece) for piece in pieces]),
        document_starts=_starts([len(document) for document in sentences]),
    )
    _write_cached(path, encoded)
    return encoded


def _starts(lengths: list[int]) -> Integers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _write_cached(path: Path, encoded: EncodedDocuments) -> None:
    from safetensors.numpy import save

    arrays = {name: getattr(encoded, name) for name in EncodedDocuments.__slots__}
    write_cached(path, save(arrays))


def _read_cached(path: Path, *, documents: int, vocabulary: int) -> EncodedDocuments | None:
    """Return what is in the cache, or None where nothing is, or nothing that fits together."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

    try:
        encoded = EncodedDocuments(**load_file(path))
    except (SafetensorError, TypeError, OSError):  # no such file, too
        return None
    ids, sentences, borders = encoded.ids, encoded.sentence_starts, encoded.document_starts
    sound = (
        ids.dtype == np.int32
        and len(borders) == documents + 1
        and _are_borders(borders, len(sentences) - 1)
        and _are_borders(sentences, len(ids))
        and (not len(ids) or (ids.min() >= 0 and ids.max() < vocabulary))
    )
    return encoded if sound else None


def _are_borders(borders: Integers, end: int) -> bool:
    return len(borders) > 0 and borders[0] == 0 and borders[-1] == end and bool((np.diff(borders) >= 0).all())
