"""Comma-separated values, RFC 4180: the first line names the columns, a quoted field may span lines."""

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from wordorder.data.corpora.document import Row
from wordorder.data.corpora.plain_text import decode
from wordorder.errors import BadInput


def read_csv(path: Path, columns: Sequence[str] | None = None) -> list[Row]:
    """Return one row per record; every value is text.

    Args:
        path: the file.
        columns: names of the columns where the first line does not name them; None: it does.

    Raises:
        BadInput: the file is not UTF-8 text, has no record, or a record has not as many fields as there are columns.
    """
    text = decode(path)
    # The limit belongs to the whole process, so it is put back: a document may be longer than its 131,072 characters.
    limit = csv.field_size_limit(sys.maxsize)
    try:
        records = [record for record in csv.reader(io.StringIO(text, newline=""), strict=True) if record]
    except csv.Error as error:
        raise BadInput(f"{path} is not CSV: {error}") from error
    finally:
        csv.field_size_limit(limit)
    names = list(columns) if columns is not None else records.pop(0)
    origin = "the first line names" if columns is None else "data.columns names"
    for number, record in enumerate(records, start=1):
        if len(record) != len(names):
            raise BadInput(f"{path} row {number} has {len(record)} fields where {origin} {len(names)}")
    if not records:
        raise BadInput(f"{path} has a line of column names and no row")
    return [dict(zip(names, record, strict=True)) for record in records]
