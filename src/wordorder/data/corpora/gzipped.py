"""Files that gzip packed, unpacked in memory up to a limit."""

import gzip
import zlib
from pathlib import Path

from wordorder.errors import BadInput

MOST_BYTES = 4 * 2**30
"""A file of a few megabytes may hold terabytes; more than this is refused before it fills the memory."""

_AT_A_TIME = 2**22


def unpack(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """Return what a .gz file holds.

    Args:
        path: the file.
        most: bytes that it may hold.

    Raises:
        BadInput: it is no gzip file, is damaged or cut off, or holds more; the line names the file.
    """
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.open(path, "rb") as file:
            while part := file.read(_AT_A_TIME):
                size += len(part)
                if size > most:
                    raise BadInput(f"{path} holds more than {most / 2**30:.3g} GiB; unpack it and divide it into files")
                parts.append(part)
    except gzip.BadGzipFile as error:
        raise BadInput(f"{path} is not a gzip file, or is damaged: {error}") from None
    except EOFError:
        raise BadInput(f"{path} is cut off: its end is missing; copy or download it again") from None
    except zlib.error as error:
        raise BadInput(f"{path} is damaged: {error}; copy or download it again") from None
    return b"".join(parts)
