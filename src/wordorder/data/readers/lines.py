"""Lines of text files, plain or packed, decoded by the encoding that the recipe says."""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wordorder.data.readers.reader import Fault
from wordorder.files import check_plain

_PIECE = 2**20
"""Most characters of a line that are read before they are looked at."""

_UNPACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
PACKED = tuple(_UNPACKED)
"""Endings of files that are unpacked while they are read."""

_UTF_16 = tuple(mark.decode("ascii", "surrogateescape") for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
"""Beginning of a file of UTF-16 that is read as one of UTF-8."""


def opener_of(path: Path) -> Callable[..., Any]:
    """Return what opens a file as its ending says, packed or plain."""
    return _UNPACKED.get(path.suffix.lower(), Path.open)


def lines_of(path: Path, encoding: str = "utf-8", *, end: str = "") -> Iterator[tuple[int, str] | Fault]:
    """Yield the number and the text of each line with its end, or what is wrong with it.

    A byte order mark at the start of the file is left out. Where a packed file breaks off, or a line of a million
    characters is binary, the fault is the last item.

    Args:
        end: what ends a line, as `io.TextIOWrapper` has it: "" for "\\n", "\\r" and "\\r\\n".
    """
    check_plain(path)
    number = 0
    try:
        with (
            opener_of(path)(path, "rb") as binary,
            # bytes that are not of the encoding come as surrogates, so that the lines around them are read
            io.TextIOWrapper(binary, encoding, errors="surrogateescape", newline=end) as file,
        ):
            while piece := file.readline(_PIECE):
                number += 1
                line = piece if len(piece) < _PIECE else _whole_line(piece, file, end)
                if line is None:
                    yield Fault(f"{path} line {number} is binary: it holds a byte that is 0")
                    return
                line = line.removeprefix("\ufeff") if number == 1 else line
                fault = _fault_of(line, encoding)
                yield Fault(f"{path} line {number} {fault}") if fault else (number, line)
    except EOFError:
        yield Fault(f"{path} is cut off: its end is missing; copy or download it again")
    except UnicodeError as error:  # of an encoding whose characters have two bytes or four
        yield Fault(f"{path} line {number + 1} is not {encoding}: {error}; set data.file_encoding to the right one")
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        yield Fault(f"{path} is not a {_name_of(path)} file, or is damaged: {error}; copy or download it again")
    except OSError as error:
        if error.errno is not None or path.suffix.lower() != ".bz2":
            raise
        yield Fault(f"{path} is not a {_name_of(path)} file, or is damaged: {error}; copy or download it again")


def plain(line: str) -> str:
    """Return a line that "\\n" ends, however its file ends it."""
    return line.replace("\r\n", "\n").replace("\r", "\n")


def _name_of(path: Path) -> str:
    return {".gz": "gzip"}.get(path.suffix.lower(), path.suffix.lower()[1:])


def _whole_line(piece: str, file: io.TextIOWrapper, end: str) -> str | None:
    """Return the line that a piece begins, or None where it is binary: the zeros of a sparse file may be terabytes."""
    pieces = [piece]
    while len(pieces[-1]) == _PIECE and not pieces[-1].endswith(end or ("\n", "\r")):
        if "\0" in pieces[-1]:
            return None
        pieces.append(file.readline(_PIECE))
    return "".join(pieces)


def _fault_of(line: str, encoding: str) -> str:
    if "\0" in line and not line.startswith(_UTF_16):
        return "is binary: it holds a byte that is 0"
    try:
        line.encode()  # alone among the strings of Python, half of a surrogate pair cannot be written
    except UnicodeEncodeError as error:
        before = line[: error.start].encode(encoding, "surrogateescape")
        byte = ord(line[error.start]) - 0xDC00
        name = {"utf-8": "UTF-8"}.get(encoding, encoding)
        remedy = "utf-16" if line.startswith(_UTF_16) else "cp1252"
        return (
            f"is not {name}: byte {len(before)} of the line is 0x{byte:02x}; if it has another encoding, such as "
            f"{remedy}, say so by data.file_encoding"
        )
    return ""
