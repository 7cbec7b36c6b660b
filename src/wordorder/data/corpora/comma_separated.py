"""Comma-separated values, RFC 4180: the first line names the columns, a quoted field may span lines."""

import csv
import io
import sys
from pathlib import Path

from wordorder.data.corpora.document import Row
from wordorder.data.corpora.plain_text import decode
from wordorder.errors import BadInput


def read_csv(path: Path) -> list[Row]:
    """Return one row per record; every value is text.

    Raises:
        BadInput: the file is not UTF-8 text, has no record, or a record has more or fewer fields than the first line.
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
    header = records[0]
    for number, record in enumerate(records[1:], start=1):
        if len(record) != len(header):
            raise BadInput(f"{path} row {number} has {len(record)} fields where the first line names {len(header)}")
    if len(records) == 1:
        raise BadInput(f"{path} has a line of column names and no row")
    return [dict(zip(header, record, strict=True)) for record in records[1:]]
