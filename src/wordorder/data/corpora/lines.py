"""Lines of a file, what the readers of rows make of them, and the reader of JSON Lines.

A reader of rows yields `Found`: a row, or what is wrong with it. What cannot be read is never skipped here: whoever
reads decides.
"""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from gzip import GzipFile
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from wordorder.data.corpora.document import Row
from wordorder.errors import BadInput
from wordorder.limits import check_plain, parse_json

_PIECE = 2**20
"""Most bytes of a line that are read before it is looked at."""


class Found(NamedTuple):
    """A row of a file, or the reason why there is none."""

    row: Row | None
    line: int
    """Its number, from 1."""
    fault: str = ""
    """The fault, in words that name file and line; empty where there is none."""


class RowReader(Protocol):
    def __call__(self, path: Path, columns: Sequence[str] | None = None, *, whole: bool = False) -> Iterator[Found]:
        """Yield the rows of a file.

        Args:
            columns: names of the columns of a table where its first line does not have them; None: it has.
            whole: the whole file is wanted, and a file without rows is a fault; False: what can be read of a damaged
                one.
        """
        ...


def read_rows(reader: RowReader, path: Path, columns: Sequence[str] | None = None) -> list[Row]:
    rows: list[Row] = []
    for found in reader(path, columns=columns, whole=True):
        if found.row is None:
            raise BadInput(found.fault)
        rows.append(found.row)
    return rows


def lines_of(path: Path) -> Iterator[tuple[int, bytes] | Found]:
    """Yield the lines of a file, unpacked where it ends in .gz, each with its number; a carriage return ends one too.

    Where a packed file breaks off, or a line of a megabyte or more is binary, the last item is a `Found`.
    """
    check_plain(path)
    number = 0
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            while piece := file.readline(_PIECE):
                line = piece if len(piece) < _PIECE else _whole_line(piece, file)
                if line is None:
                    yield Found(None, number + 1, f"{path} line {number + 1} is binary: it holds a byte that is 0")
                    return
                for part in line.splitlines(keepends=True) if b"\r" in line else (line,):
                    number += 1
                    yield number, part
    except EOFError:
        fault = "is cut off: its end is missing; copy or download it again"
        yield Found(None, number + 1, f"{path} {fault}")
    except (gzip.BadGzipFile, zlib.error) as error:
        fault = f"is not a gzip file, or is damaged: {error}; copy or download it again"
        yield Found(None, number + 1, f"{path} {fault}")


def _whole_line(piece: bytes, file: BinaryIO | GzipFile) -> bytes | None:
    """Return the line that a piece begins, or None where it is binary: the zeros of a sparse file may be terabytes."""
    pieces = [piece]
    while len(pieces[-1]) == _PIECE and not pieces[-1].endswith(b"\n"):
        if b"\0" in pieces[-1]:
            return None
        pieces.append(file.readline(_PIECE))
    return b"".join(pieces)


def text_of_line(line: bytes, path: Path, number: int) -> str | Found:
    """Return a line as text, without a byte order mark at the start of the file, or what is wrong with it."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8: byte {error.start} of the line is 0x{line[error.start]:02x}"
    else:
        if "\0" not in text:
            return text.removeprefix("\ufeff") if number == 1 else text
        fault = "is binary: it holds a byte that is 0"
    return Found(None, number, f"{path} line {number} {fault}")


def read_json_lines(path: Path, columns: Sequence[str] | None = None, *, whole: bool = False) -> Iterator[Found]:
    """Yield one row per line that is not blank, an object whose keys are the columns; see `RowReader`."""
    blank = True
    for line in lines_of(path):
        if isinstance(line, Found):
            yield line
            return
        number, content = line
        text = text_of_line(content, path, number)
        if isinstance(text, Found):
            yield text
            continue
        if not text or text.isspace():
            continue
        blank = False
        try:
            row: object = parse_json(text.rstrip("\r\n"))
        except ValueError as error:
            yield Found(None, number, f"{path} line {number} is not JSON: {error}")
            continue
        if isinstance(row, dict):
            yield Found(row, number)
        else:
            yield Found(None, number, f"{path} line {number} is not a JSON object with named columns")
    if whole and blank:
        yield Found(None, 0, f"{path} is empty")
