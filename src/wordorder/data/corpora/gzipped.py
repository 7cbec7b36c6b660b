"""Files that gzip packed, unpacked in memory up to a limit."""

import gzip
import zlib
from pathlib import Path

from wordorder.errors import BadInput
from wordorder.limits import check_plain, most_unpacked

_AT_A_TIME = 2**22


def unpack(path: Path, *, most: int | None = None) -> bytes | bytearray:
    """Return what a .gz file holds.

    Raises:
        BadInput: it is no gzip file, is damaged or cut off, or holds more; the line names the file.
    """
    content = bytearray()
    try:
        check_plain(path)
        with gzip.open(path, "rb") as file:
            limit = most_unpacked(path) if most is None else most
            while part := file.read(_AT_A_TIME):
                content += part
                if len(content) > limit:
                    raise BadInput(
                        f"{path} holds more than {limit / 2**30:.3g} GiB; unpack it and divide it into files"
                    )
    except gzip.BadGzipFile as error:
        raise BadInput(f"{path} is not a gzip file, or is damaged: {error}") from None
    except EOFError:
        raise BadInput(f"{path} is cut off: its end is missing; copy or download it again") from None
    except zlib.error as error:
        raise BadInput(f"{path} is damaged: {error}; copy or download it again") from None
    return content
