"""Lines of a file from any place, what the readers of rows make of them, and the reader of JSON Lines.

A reader of rows yields `Found`: a row, or what is wrong with it, and the place where reading goes on after it. Corpora
that are held in memory and those that are streamed have the same readers: `read_rows` collects what they yield, a
stream takes one row after another. What cannot be read is never skipped here: whoever reads decides.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Protocol, cast

from wordorder.data.corpora.document import Row
from wordorder.errors import BadInput
from wordorder.limits import check_plain, most_unpacked, parse_json

_LINE = 2**24  # most bytes of one line of a stream; more is a file without line ends
_AT_A_TIME = 2**22


class Place(NamedTuple):
    """A place in a file at which reading goes on."""

    offset: int = 0
    """Bytes before it, of the unpacked content; of Parquet the row group."""
    line: int = 0
    """Lines, records or rows before it; of Parquet the rows of the row group."""


START = Place()


class Found(NamedTuple):
    """A row of a file, or the reason why there is none."""

    row: Row | None
    line: int
    """Its number, from 1."""
    after: Place
    """The place where reading goes on; not there again where the rest of the file is lost."""
    fault: str = ""
    """The fault, in words that name file and line; empty where there is none."""


class RowReader(Protocol):
    """A reader of one format."""

    def __call__(
        self, path: Path, place: Place = START, columns: Sequence[str] | None = None, *, whole: bool = False
    ) -> Iterator[Found]:
        """Yield the rows of a file.

        Args:
            columns: names of the columns of a table where its first line does not have them; None: it has.
            whole: all rows are held in memory. Then lines may be of any length, what a packed file unpacks to is
                limited as a whole, and a file without rows is a fault.
        """
        ...


def read_rows(reader: RowReader, path: Path, columns: Sequence[str] | None = None) -> list[Row]:
    """Return all rows of a file."""
    rows: list[Row] = []
    for found in reader(path, columns=columns, whole=True):
        if found.row is None:
            raise BadInput(found.fault)
        rows.append(found.row)
    return rows


def unpack(path: Path) -> bytes | bytearray:
    """Return what a .gz file holds."""
    content = bytearray()
    try:
        with gzip.open(path, "rb") as file:
            limit = most_unpacked(path)
            while part := file.read(_AT_A_TIME):
                content += part
                if len(content) > limit:
                    raise BadInput(
                        f"{path} holds more than {limit / 2**30:.3g} GiB; unpack it and divide it into files"
                    )
    except EOFError:
        raise BadInput(f"{path} is cut off: its end is missing; copy or download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadInput(f"{path} is not a gzip file, or is damaged: {error}; copy or download it again") from None
    return content


def _open(path: Path, *, whole: bool) -> IO[bytes]:
    check_plain(path)
    if path.suffix != ".gz":
        return path.open("rb")
    return io.BytesIO(unpack(path)) if whole else cast("IO[bytes]", gzip.open(path, "rb"))


def lines_of(
    path: Path, place: Place, *, whole: bool = False, at_returns: bool = True
) -> Iterator[tuple[bytes, Place] | Found]:
    """Yield the lines of a file, unpacked where it ends in .gz, with the place after each.

    Where the file breaks off, the last item is a `Found`.

    Args:
        at_returns: a carriage return alone ends a line too.
    """
    offset, number = place
    try:
        with _open(path, whole=whole) as file:
            file.seek(offset)
            for line in file if whole else iter(lambda: file.readline(_LINE), b""):
                for part in line.splitlines(keepends=True) if at_returns and b"\r" in line else (line,):
                    offset += len(part)
                    number += 1
                    yield part, Place(offset, number)
    except (OSError, EOFError, zlib.error) as error:
        if whole:
            raise
        reason = getattr(error, "strerror", None) or error
        yield Found(None, number + 1, Place(sys.maxsize, number + 1), f"{path} line {number + 1}: {reason}")


def text_of_line(line: bytes, path: Path, after: Place) -> str | Found:
    """Return a line as text, without a byte order mark at the start of the file, or what is wrong with it."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8: byte {error.start} of the line is 0x{line[error.start]:02x}"
    else:
        if "\0" not in text:
            return text.removeprefix("\ufeff") if after.offset == len(line) else text
        fault = "is binary: it holds a byte that is 0"
    return Found(None, after.line, after, f"{path} line {after.line} {fault}")


def read_json_lines(
    path: Path, place: Place = START, columns: Sequence[str] | None = None, *, whole: bool = False
) -> Iterator[Found]:
    """Yield one row per line that is not blank, an object whose keys are the columns; see `RowReader`."""
    blank = True
    for line in lines_of(path, place, whole=whole):
        if isinstance(line, Found):
            yield line
            return
        content, after = line
        text = text_of_line(content, path, after)
        if isinstance(text, Found):
            yield text
            continue
        if not text or text.isspace():
            continue
        blank = False
        try:
            row: object = parse_json(text.rstrip("\r\n"))
        except ValueError as error:
            yield Found(None, after.line, after, f"{path} line {after.line} is not JSON: {error}")
            continue
        if isinstance(row, dict):
            yield Found(row, after.line, after)
        else:
            fault = f"{path} line {after.line} is not a JSON object with named columns"
            yield Found(None, after.line, after, fault)
    if whole and blank:
        yield Found(None, 0, place, f"{path} is empty")
