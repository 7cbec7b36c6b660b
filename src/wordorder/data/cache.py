"""Cache of trained tokenisers and encoded corpora: files named by a hash of all that went into them."""

import hashlib
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile

from wordorder.errors import BadInput


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


def write_cached(path: Path, content: bytes) -> None:
    """Write a cache file so that a reader sees all of it or nothing, even when two runs write it at the same time.

    A folder that cannot be written is a warning, not an error: the cache saves time and nothing else.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        warnings.warn(f"cannot cache in {path.parent} ({error.strerror}); set WORDORDER_CACHE", stacklevel=2)
