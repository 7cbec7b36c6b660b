"""Cache of trained tokenisers and encoded corpora: files named by a hash of all that went into them."""

import errno
import hashlib
import json
import os
import warnings
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp
from time import time
from typing import Any

from wordorder.errors import BadInput
from wordorder.files import read_json

_BLOCK, _DAY = 2**20, 86_400


def default_cache_dir() -> Path:
    """Return $WORDORDER_CACHE, or ~/.cache/wordorder where it is not set.

    Raises:
        BadInput: the user has no home folder.
    """
    chosen = os.environ.get("WORDORDER_CACHE")
    try:
        return Path(chosen or "~/.cache/wordorder").expanduser()
    except RuntimeError:
        raise BadInput("the user has no home folder to cache in; set WORDORDER_CACHE to the path of a folder") from None


def content_hash(parts: Iterable[str | bytes]) -> str:
    """Return 32 hexadecimal digits that name the sequence of parts; the border between two parts counts."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


@dataclass(slots=True)
class NewFile:
    """A file that is being written, and whether it has the place in the cache that it was made for."""

    path: Path
    placed: bool = False


@contextmanager
def new_file(path: Path) -> Generator[NewFile]:
    """Give a file to write in the place of a cache file, which it becomes at the end, so that a reader sees all of it
    or nothing, even when two runs write it at the same time. What a power cut makes of it its checksum tells.

    In a folder that cannot be written it is a file that soon has no name, and a warning: the cache saves time alone.

    Raises:
        BadInput: the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{path.name}.*"):  # of a run that was killed
            if time() - left.stat().st_mtime > _DAY:
                left.unlink(missing_ok=True)
        number, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        warnings.warn(f"cannot cache in {path.parent} ({error.strerror}); set WORDORDER_CACHE", stacklevel=3)
        (number, name), path = mkstemp(), Path()
    file = NewFile(Path(name))
    try:
        yield file
        if path.name:
            os.replace(name, path)
            file.placed = True
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise BadInput(
            f"{Path(name).parent} has no room for the cache of the texts: make room, or set WORDORDER_CACHE to a folder"
            " of another disk"
        ) from None
    finally:
        os.close(number)
        Path(name).unlink(missing_ok=True)


def note_of(path: Path) -> dict[str, Any] | None:
    """Return the note beside a cache file; None where there is none, or the file is not as it was noted."""
    try:
        note: Any = read_json(path.with_suffix(".json"))
        return note if path.stat().st_size == note["bytes"] and _checksum(path) == note["blake2b"] else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write_note(path: Path, note: Mapping[str, Any]) -> None:
    """Note beside a cache file what it holds, and its size and checksum; without its note it counts for nothing."""
    note = {**note, "bytes": path.stat().st_size, "blake2b": _checksum(path)}
    write_cached(path.with_suffix(".json"), json.dumps(note).encode())


def _checksum(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def write_cached(path: Path, content: bytes) -> None:
    """Write a small cache file, see `new_file`."""
    with new_file(path) as file:
        file.path.write_bytes(content)
