"""Lines of a file from any place, and what the readers of rows make of them.

A reader of rows yields `Found`: a row, or what is wrong with it, and the place where reading goes on after it. Corpora
that are held in memory and those that are streamed have the same readers: `read_rows` collects what they yield, a
stream takes one row after another. What cannot be read is never skipped here: whoever reads decides.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, Protocol, cast

from wordorder.data.corpora.document import Row
from wordorder.data.corpora.gzipped import unpack
from wordorder.errors import BadInput
from wordorder.limits import check_plain

_LINE = 2**24  # most bytes of one line of a stream; more is a file without line ends
_BROKEN = (OSError, EOFError, zlib.error)


class Place(NamedTuple):
    """A place in a file at which reading goes on.

    Args:
        offset: bytes before it, of the unpacked content; of Parquet the row group.
        line: lines, records or rows before it; of Parquet the rows of the row group.
    """

    offset: int = 0
    line: int = 0


START = Place()


class Found(NamedTuple):
    """A row of a file, or the reason why there is none.

    Args:
        row: its columns; None where it cannot be read.
        line: its number, from 1.
        after: where reading goes on; not there again where the rest of the file is lost.
        fault: what is wrong, in words that name file and line; empty where nothing is.
        of_file: the same for somebody who reads the file as a whole, by its bytes or rows; empty: as `fault`.
    """

    row: Row | None
    line: int
    after: Place
    fault: str = ""
    of_file: str = ""


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
    """Return all rows of a file.

    Raises:
        BadInput: it has no row, or one that cannot be read; the first one is named.
        OSError: it cannot be opened or read.
        MissingExtra: the reader's package is not installed.
    """
    rows: list[Row] = []
    for found in reader(path, columns=columns, whole=True):
        if found.row is None:
            raise BadInput(found.of_file or found.fault)
        rows.append(found.row)
    return rows


@contextmanager
def _open(path: Path, *, whole: bool) -> Generator[IO[bytes]]:
    check_plain(path)
    if path.suffix != ".gz":
        file = path.open("rb")
    else:
        file = io.BytesIO(unpack(path)) if whole else cast("IO[bytes]", gzip.open(path, "rb"))
    with file:
        yield file


def lines_of(
    path: Path, place: Place, *, whole: bool = False, at_returns: bool = True
) -> Iterator[tuple[bytes, int, int] | Found]:
    """Yield the lines of a file, with the offset and the number of lines after each.

    Where the file breaks off, the last item is a `Found`.

    Args:
        path: the file; one that ends in .gz is unpacked.
        at_returns: a carriage return alone ends a line too.

    Raises:
        BadInput: a packed file that is read as a whole is damaged, or holds too much.
        OSError: a file that is read as a whole cannot be read.
    """
    offset, number = place
    try:
        with _open(path, whole=whole) as file:
            file.seek(offset)
            for line in file if whole else iter(lambda: file.readline(_LINE), b""):
                if not (at_returns and b"\r" in line):
                    offset += len(line)
                    number += 1
                    yield line, offset, number
                    continue
                for part in line.splitlines(keepends=True):
                    offset += len(part)
                    number += 1
                    yield part, offset, number
    except _BROKEN as error:
        if whole:
            raise
        reason = getattr(error, "strerror", None) or error
        yield Found(None, number + 1, Place(sys.maxsize, number + 1), f"{path} line {number + 1}: {reason}")


def text_of_line(line: bytes, path: Path, after: Place) -> str | Found:
    """Return a line as text, without a byte order mark at the start of the file, or what is wrong with it."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        at, byte = error.start, f"0x{line[error.start]:02x}"
        what, here = "is not UTF-8", f"byte {at} of the line is {byte}"
    else:
        if "\0" not in text:
            return text.removeprefix("\ufeff") if after.offset == len(line) else text
        at, byte = line.index(b"\0"), "0"
        what, here = "is binary", "it holds a byte that is 0"
    return Found(
        None,
        after.line,
        after,
        f"{path} line {after.line} {what}: {here}",
        f"{path} {what}: byte {after.offset - len(line) + at} is {byte}",
    )
