"""Files read row by row from any place, so that none has to fit into memory and reading can go on where it stopped.

Each reader yields `Found`: a row, or what is wrong with it, and the place where reading goes on after it. What cannot
be read is never skipped here: whoever reads decides.
"""

import csv
import gzip
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from wordorder.data.corpora.document import Row
from wordorder.data.corpora.parquet import rows_of
from wordorder.errors import MissingExtra
from wordorder.limits import check_plain, parse_json

WHOLE_FILE = 2**20
"""A text file of at most so many bytes is one document; a larger one is cut into documents."""
DOCUMENT, LONGEST = 10_000, 50_000
"""Bytes after which a document of a larger text file ends: at the next blank line, or at the latest at a line end."""
_LINE = 2**24  # most bytes of one line; more is a file without line ends
_BROKEN = (OSError, EOFError, zlib.error)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file at which reading goes on.

    Args:
        offset: bytes before it, of the unpacked content; of Parquet the row group.
        line: lines, records or rows before it; of Parquet the rows of the row group.
    """

    offset: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A row of a file, or the reason why there is none.

    Args:
        row: its columns; None where it cannot be read.
        line: its number, from 1.
        after: where reading goes on; not there again where the rest of the file is lost.
        fault: what is wrong, in words that name file and line; empty where nothing is.
    """

    row: Row | None
    line: int
    after: Place
    fault: str = ""


StreamReader = Callable[[Path, Place, Sequence[str] | None], Iterator[Found]]


@contextmanager
def _open(path: Path) -> Generator[IO[bytes]]:
    check_plain(path)
    file = cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
    with file:
        yield file


def _lines(path: Path, place: Place) -> Iterator[tuple[bytes, Place] | Found]:
    """Yield the lines of a file with the place after each; at last a `Found` where the file breaks off."""
    offset, number = place.offset, place.line
    try:
        with _open(path) as file:
            file.seek(offset)
            while line := file.readline(_LINE):
                offset += len(line)
                number += 1
                yield line, Place(offset, number)
    except _BROKEN as error:
        reason = getattr(error, "strerror", None) or error
        yield Found(None, number + 1, Place(sys.maxsize, number + 1), f"{path} line {number + 1}: {reason}")


def _text(line: bytes, path: Path, number: int) -> str | Found:
    """Decode a line as text, or return what is wrong with it."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"{path} line {number} is not UTF-8: byte {error.start} of the line is 0x{line[error.start]:02x}"
    else:
        if "\0" not in text:
            return text.removeprefix("\ufeff") if number == 1 else text
        what = f"{path} line {number} is binary: it holds a byte that is 0"
    return Found(None, number, Place(), what)


def stream_json_lines(path: Path, place: Place, columns: Sequence[str] | None = None) -> Iterator[Found]:
    """Yield the rows of .jsonl and .jsonl.gz.

    Args:
        path: the file.
        place: where to begin.
        columns: not used.
    """
    for found in _lines(path, place):
        if isinstance(found, Found):
            yield found
            return
        line, after = found
        text = _text(line, path, after.line)
        if isinstance(text, Found):
            yield Found(None, after.line, after, text.fault)
        elif text.strip():
            yield _object(text, path, after)


def _object(text: str, path: Path, after: Place) -> Found:
    try:
        row: object = parse_json(text)
    except ValueError as error:
        return Found(None, after.line, after, f"{path} line {after.line} is not JSON: {error}")
    if not isinstance(row, dict):
        return Found(None, after.line, after, f"{path} line {after.line} is not a JSON object with named columns")
    return Found(cast(Row, row), after.line, after)


class _Consumed:
    """Lines as text for csv.reader, and where the last one that it took ended."""

    def __init__(self, path: Path, place: Place) -> None:
        self._path, self._lines = path, _lines(path, place)
        self.after, self.fault = place, ""

    def __iter__(self) -> "_Consumed":
        return self

    def __next__(self) -> str:
        found = next(self._lines)
        if isinstance(found, Found):
            self.after, self.fault = found.after, found.fault
            raise StopIteration
        line, self.after = found
        text = _text(line, self._path, self.after.line)
        if isinstance(text, Found):
            self.fault = text.fault
            return "\n"  # stands for the line, so that those before and after it are read
        return text


def stream_table(path: Path, place: Place, columns: Sequence[str] | None = None) -> Iterator[Found]:
    """Yield the rows of .csv, RFC 4180, and of .tsv, which has no quotes.

    Args:
        path: the file.
        place: where to begin; the first line of the file is read for the names of the columns in any case.
        columns: their names where the first line does not have them; None: it has.
    """
    quoting: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if path.suffix == ".tsv" else {}
    limit = csv.field_size_limit(sys.maxsize)
    try:
        names = list(columns) if columns is not None else None
        if names is None:
            head = _Consumed(path, Place())
            names = next(iter(csv.reader(head, **quoting)), list[str]())
            if head.fault:
                yield Found(None, 1, Place(sys.maxsize, 1), head.fault)
                return
            place = max(place, head.after, key=lambda at: at.offset)
    finally:
        csv.field_size_limit(limit)
    lines = _Consumed(path, place)
    reader = csv.reader(lines, strict=True, **quoting)
    while True:
        first = lines.after.line + 1
        # the limit belongs to the whole process, so it is put back before anybody else runs
        limit = csv.field_size_limit(sys.maxsize)
        try:
            record, wrong = next(reader, None), ""
        except csv.Error as error:
            record, wrong = [], f"{path} line {first} is not CSV: {error}"
        finally:
            csv.field_size_limit(limit)
        fault, lines.fault = lines.fault or wrong, ""
        if record and not fault and len(record) != len(names):
            fault = f"{path} line {first} has {len(record)} fields where there are {len(names)} columns"
        if fault:
            yield Found(None, first, lines.after, fault)
        elif record:
            yield Found(dict(zip(names, record, strict=True)), first, lines.after)
        if record is None:
            return


def stream_text(path: Path, place: Place, columns: Sequence[str] | None = None) -> Iterator[Found]:
    """Yield the documents of .txt: the whole file where it is small, else pieces of it that end at blank lines.

    Args:
        path: the file.
        place: where to begin.
        columns: not used.
    """
    whole = path.stat().st_size <= WHOLE_FILE
    held: list[bytes] = []
    size, first, after, broken = 0, place.line + 1, place, ""
    for found in _lines(path, place):
        if isinstance(found, Found):
            after, broken = found.after, found.fault
            break
        line, after = found
        held.append(line)
        size += len(line)
        blank = not line.strip()
        if not whole and ((blank and size >= DOCUMENT) or size >= LONGEST):
            yield _document(b"".join(held), path, first, after)
            held, size, first = [], 0, after.line + 1
    if broken:
        yield Found(None, first, after, broken)
    elif held:
        yield _document(b"".join(held), path, first, after)


def _document(content: bytes, path: Path, first: int, after: Place) -> Found:
    text = _text(content, path, first)
    if isinstance(text, Found):
        return Found(None, first, after, text.fault.replace("line", "text from line", 1))
    return Found({"text": text.replace("\r\n", "\n").replace("\r", "\n")}, first, after)


def stream_parquet(path: Path, place: Place, columns: Sequence[str] | None = None) -> Iterator[Found]:
    """Yield the rows of .parquet, one row group in memory at a time.

    Args:
        path: the file.
        place: where to begin.
        columns: not used.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "train") from error
    arrow: Any = pyarrow  # neither has type stubs
    reader: Any = parquet
    wrong = (arrow.ArrowException, ValueError, OSError)
    try:
        check_plain(path)
        file = reader.ParquetFile(path)
    except wrong as error:
        yield Found(None, 0, Place(sys.maxsize), f"{path} is not a Parquet file: {str(error).splitlines()[0]}")
        return
    with file:
        before = sum(file.metadata.row_group(group).num_rows for group in range(min(place.offset, file.num_row_groups)))
        for group in range(place.offset, file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            skip = place.line if group == place.offset else 0
            try:
                rows = rows_of(file, [group], path)
            except wrong as error:
                reason = str(error).splitlines()[0].replace(f"{path} unpacks", "it unpacks")
                fault = f"{path} row group {group} (rows {before + 1} to {before + count}) cannot be read: {reason}"
                yield Found(None, before + 1, Place(group + 1), fault)
            else:
                for number, row in enumerate(rows[skip:], start=skip + 1):
                    yield Found(row, before + number, Place(group, number) if number < count else Place(group + 1))
            before += count


STREAM_READERS: dict[str, StreamReader] = {
    ".txt": stream_text,
    ".jsonl": stream_json_lines,
    ".jsonl.gz": stream_json_lines,
    ".csv": stream_table,
    ".tsv": stream_table,
    ".parquet": stream_parquet,
}
"""File name ending -> reader of a file of any size."""
