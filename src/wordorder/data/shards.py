"""Encoded documents in files of bounded size: named by their content, checked by a checksum, mapped into memory."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wordorder.data.cache import content_hash, write_cached
from wordorder.data.examples.encoded import EncodedDocuments, Integers

SHARD = 2**22
"""Characters after which a shard ends: about a million tokens of words, 4 MB."""

_FORMAT = "2"  # version of the file and of the sentence borders: raise it when either changes
_LONGEST_HEADER = 2**16
_ARRAYS = {"ids": np.dtype(np.int32), "sentence_starts": np.dtype(np.int64), "document_starts": np.dtype(np.int64)}
_CODES = {"I32": np.dtype(np.int32), "I64": np.dtype(np.int64)}  # names of safetensors


def shard_name(texts: Sequence[str], tokenizer_state: str) -> str:
    """Name a shard by all that its tokens depend on."""
    return content_hash([_FORMAT, tokenizer_state, *texts])


def write_shard(path: Path, encoded: EncodedDocuments) -> None:
    """Write a shard, whole or not at all; a folder that cannot be written is a warning.

    Args:
        path: of the file, whose folder may be missing.
    """
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(getattr(encoded, name)) for name in _ARRAYS}
    write_cached(path, save(arrays, metadata={"blake2b": _checksum(arrays.values())}))


def read_shard(path: Path, *, documents: int, vocabulary: int) -> EncodedDocuments | None:
    """Map a shard into memory: None where there is none, or it is not as it was written, or does not fit.

    Only its pages that are looked at are in memory, and the system may drop them again.
    """
    try:
        arrays, written = _mapped(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if {name: array.dtype for name, array in arrays.items()} != _ARRAYS:
        return None
    if any(array.ndim != 1 for array in arrays.values()) or _checksum(arrays[name] for name in _ARRAYS) != written:
        return None
    encoded = EncodedDocuments(**arrays)
    ids, sentences, borders = encoded.ids, encoded.sentence_starts, encoded.document_starts
    sound = (
        len(borders) == documents + 1
        and _are_borders(borders, len(sentences) - 1)
        and _are_borders(sentences, len(ids))
        and (not len(ids) or (ids.min() >= 0 and ids.max() < vocabulary))
    )
    return encoded if sound else None


def _mapped(path: Path) -> tuple[dict[str, Any], str]:
    """Map the arrays of a safetensors file, and return them with its checksum.

    The library itself would read them into memory.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST_HEADER:
            raise ValueError("no shard has such a header")
        header = json.loads(file.read(length))
    written: str = header.pop("__metadata__")["blake2b"]
    arrays: dict[str, Any] = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        (count,), kind = entry["shape"], _CODES[entry["dtype"]]
        if end - begin != count * kind.itemsize:
            raise ValueError("the sizes of a shard do not agree")
        mapped = np.memmap(path, kind, mode="r", offset=8 + length + begin, shape=count) if count else np.empty(0, kind)
        arrays[name] = mapped.view(np.ndarray)
    return arrays, written


def _checksum(arrays: Iterable[npt.NDArray[Any]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()


def _are_borders(borders: Integers, end: int) -> bool:
    return len(borders) > 0 and borders[0] == 0 and borders[-1] == end and bool((np.diff(borders) >= 0).all())
