"""Tables of text: comma-separated values, whose quoted fields may span lines, and tab-separated ones.

.csv is RFC 4180. .tsv is as GLUE's files have it: no quoting at all, a quotation mark is a character like any other,
and a row is a line.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from wordorder.data.readers.lines import lines_of, plain
from wordorder.data.readers.reader import Fault, Note, Reading, Row


class _Lines:
    """Lines as text, the number of the last one that was taken, and the fault of the record that cannot be read."""

    def __init__(self, path: Path, encoding: str) -> None:
        self._path, self._encoding = path, encoding
        self.number = 0
        self.fault: Fault | None = None

    def __iter__(self) -> Iterator[str]:
        for line in lines_of(self._path, self._encoding):
            if isinstance(line, Fault):
                self.number += 1
                self.fault = line
                yield "\n"  # stands for the line, so that those before and after it are read
            else:
                self.number, text = line
                # within quotes an end of a line is part of a text, and is the same for all of them
                yield plain(text)


def _records(path: Path, reading: Reading, *, delimiter: str, quoted: bool) -> Iterator[tuple[int, list[str]] | Fault]:
    """Yield the line where each record begins, and its fields; blank lines are passed over."""
    lines = _Lines(path, reading.encoding)
    if quoted:
        records = csv.reader(lines, strict=True, delimiter=delimiter)
    else:
        records = ([] if line.isspace() else line.rstrip("\n").split(delimiter) for line in lines)
    while True:
        first, fault = lines.number + 1, None
        # the limit belongs to the whole process, so it is put back before anybody else runs
        limit = csv.field_size_limit(sys.maxsize)
        try:
            record = next(records, None)
        except csv.Error as error:
            lost = f"lines {first} to {lines.number} are" if lines.number > first else f"line {first} is"
            record, fault = [], Fault(f"{path} {lost} not CSV: {error}")
        finally:
            csv.field_size_limit(limit)
        fault, lines.fault = lines.fault or fault, None
        if fault is not None:
            yield fault
        elif record:
            yield first, record
        if record is None:
            return


def read_csv(path: Path, reading: Reading) -> Iterator[Row | Fault | Note]:
    """Yield one row per record; every value is text."""
    return _rows(path, reading, delimiter=reading.delimiter or ",", quoted=reading.quoting != "none")


def read_tsv(path: Path, reading: Reading) -> Iterator[Row | Fault | Note]:
    """Yield one row per line; every value is text."""
    return _rows(path, reading, delimiter=reading.delimiter or "\t", quoted=reading.quoting == "standard")


def _rows(path: Path, reading: Reading, *, delimiter: str, quoted: bool) -> Iterator[Row | Fault | Note]:
    records = _records(path, reading, delimiter=delimiter, quoted=quoted)
    names, origin = reading.columns, "data.columns names"
    if names is None:
        head = next(records, None)
        if isinstance(head, Fault) or head is None:
            yield head or Fault(f"{path} is empty")
            return
        names, origin = tuple(head[1]), "the first line names"
        if fault := _fault_of_names(path, names, delimiter):
            yield Fault(fault)
            return
    empty, quotes_told = True, quoted
    for record in records:
        empty = False
        if isinstance(record, Fault):
            yield record
            continue
        line, fields = record
        if len(fields) != len(names):
            yield Fault(f"{path} line {line} has {len(fields)} fields where {origin} {len(names)}")
            continue
        if not quotes_told and any(len(field) > 1 and field[0] == field[-1] == '"' for field in fields):
            quotes_told = True
            yield Note(
                f"{path} line {line} has a field in quotation marks, which are read as part of it; where they only "
                'enclose it, set data.quoting="standard"'
            )
        yield Row(dict(zip(names, fields, strict=True)), f"line {line}")
    if empty:
        yield Fault(f"{path} {'is empty' if reading.columns else 'has a line of column names and no row'}")


def _fault_of_names(path: Path, names: tuple[str, ...], used: str) -> str:
    # spreadsheets leave columns without a name, which nobody can ask for
    twice = sorted(name for name, count in Counter(names).items() if count > 1 and name.strip())
    if twice:
        return f"{path} has {names.count(twice[0])} columns named {twice[0]!r}: rename or remove all but one"
    for delimiter, written in ((";", ";"), ("\t", "\\t"), (",", ",")):
        if len(names) == 1 and delimiter in names[0] and delimiter != used:
            return (
                f"{path} line 1 names one column, {names[0][:60]!r}; if {written!r} stands between its fields, set "
                f'data.delimiter="{written}"'
            )
    return ""
