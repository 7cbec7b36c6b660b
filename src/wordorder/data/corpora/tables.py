"""Tables whose first line names the columns: comma-separated values, tab-separated ones, and Apache Parquet.

.csv is RFC 4180: a quoted field may span lines. .tsv is as GLUE's files have it: no quoting at all, a quotation mark is
a character like any other, and a row is a line.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wordorder.data.corpora.lines import Found, lines_of, text_of_line
from wordorder.errors import MissingExtra
from wordorder.limits import check_plain, one_line


class _Texts:
    """Lines as text, the number of the last one that was taken, and the line of the record that cannot be read."""

    def __init__(self, path: Path, *, whole: bool) -> None:
        self._path, self._whole = path, whole
        self.line = 0
        self.lost: Found | None = None

    def __iter__(self) -> Iterator[str]:
        for line in lines_of(self._path):
            if isinstance(line, Found):
                self.line, self.lost = line.line, line
                return
            self.line, content = line
            text = text_of_line(content, self._path, self.line)
            if isinstance(text, Found):
                self.lost = text
                yield "\n"  # stands for the line, so that those before and after it are read
            elif self._whole and text.endswith(("\r\n", "\r")):
                yield text.rstrip("\r\n") + "\n"  # in quotes, where an end of a line is part of a text
            else:
                yield text

    def records(self) -> Iterator[tuple[int, list[str]] | Found]:
        if self._path.suffix.lower() == ".csv":
            records = csv.reader(self, strict=True)
        else:
            records = ([] if not line or line.isspace() else line.rstrip("\r\n").split("\t") for line in self)
        while True:
            first, wrong = self.line + 1, None
            # the limit belongs to the whole process, so it is put back before anybody else runs
            limit = csv.field_size_limit(sys.maxsize)
            try:
                record = next(records, None)
            except csv.Error as error:
                record = []
                wrong = Found(None, first, f"{self._path} line {first} is not CSV: {error}")
            finally:
                csv.field_size_limit(limit)
            lost, self.lost = self.lost or wrong, None
            if lost is not None:
                yield lost._replace(line=first)
            elif record:
                yield first, record
            if record is None:
                return


def read_table(path: Path, columns: Sequence[str] | None = None, *, whole: bool = False) -> Iterator[Found]:
    """Yield one row per record of .csv or .tsv; every value is text. See `RowReader`.

    With `whole` an end of a line within quotes is "\\n" however the file has it.
    """
    names, records = columns, _Texts(path, whole=whole).records()
    if names is None:
        head = next(records, None)
        if isinstance(head, Found):
            yield head
            return
        names = head[1] if head else ()
        # spreadsheets leave columns without a name, which nobody can ask for
        twice = sorted(name for name, count in Counter(names).items() if count > 1 and name.strip())
        if twice:
            fault = f"{path} has {names.count(twice[0])} columns named {twice[0]!r}: rename or remove all but one"
            yield Found(None, 1, fault)
            return
    empty = True
    for found in records:
        if isinstance(found, Found):
            yield found
            continue
        line, record = found
        empty = False
        if len(record) == len(names):
            yield Found(dict(zip(names, record, strict=True)), line)
            continue
        origin = "the first line names" if columns is None else "data.columns names"
        yield Found(None, line, f"{path} line {line} has {len(record)} fields where {origin} {len(names)}")
    if whole and empty:
        named = columns is None and names
        yield Found(None, 0, f"{path} {'has a line of column names and no row' if named else 'is empty'}")


def read_parquet(path: Path, columns: Sequence[str] | None = None, *, whole: bool = False) -> Iterator[Found]:
    """Yield one row per record, with all columns; not `whole`, what can be read of each row group. See `RowReader`."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "train") from error
    arrow: Any = pyarrow  # neither has type stubs
    reader: Any = parquet
    wrong = (arrow.ArrowException, ValueError, OSError)  # OSError too where its content is damaged
    damaged = f"{path} is not a Parquet file, or is damaged"
    if whole:
        check_plain(path)
        if path.stat().st_size == 0:
            yield Found(None, 0, f"{path} is empty")
            return
    try:
        check_plain(path)
        file = reader.ParquetFile(path)
    except wrong as error:
        yield Found(None, 0, f"{damaged}: {one_line(error)}")
        return
    with file:
        names: list[str] = file.schema_arrow.names
        if len(set(names)) < len(names):
            yield Found(None, 0, f"{damaged}: two of its columns have the same name")
            return
        count, before = file.num_row_groups, 0
        for groups in [range(count)] if whole else [range(group, group + 1) for group in range(count)]:
            here = sum(file.metadata.row_group(group).num_rows for group in groups)
            try:
                batches = file.iter_batches(row_groups=list(groups))
                rows = [row for batch in batches for row in batch.to_pylist()]
            except wrong as error:
                fault = f"{damaged}: {one_line(error)}"
                if not whole:
                    reason = str(error).splitlines()[0]
                    part = f"row group {groups.start} (rows {before + 1} to {before + here})"
                    fault = f"{path} {part} cannot be read: {reason}"
                yield Found(None, before + 1, fault)
            else:
                yield from (Found(row, number) for number, row in enumerate(rows, start=before + 1))
            before += here
        if whole and not before:
            yield Found(None, 0, f"{path} has no row")
