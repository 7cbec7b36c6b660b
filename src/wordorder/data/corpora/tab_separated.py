"""Tab-separated values as GLUE's files have them: no quoting at all, a quotation mark is a character like any other."""

from collections.abc import Sequence
from pathlib import Path

from wordorder.data.corpora.document import Row
from wordorder.data.corpora.plain_text import decode
from wordorder.errors import BadInput


def read_tsv(path: Path, columns: Sequence[str] | None = None) -> list[Row]:
    """Return one row per line that is not empty; every value is text.

    Args:
        path: the file.
        columns: names of the columns where the first line does not name them (CoLA's train.tsv); None: it does.

    Raises:
        BadInput: the file is not UTF-8 text, has no row, or a row has more or fewer fields than there are columns.
    """
    lines = [line for line in decode(path).split("\n") if line.strip()]
    names = list(columns) if columns is not None else lines.pop(0).split("\t")
    if not lines:
        raise BadInput(f"{path} has a line of column names and no row")
    origin = "the first line names" if columns is None else "data.columns names"
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        fields = line.split("\t")
        if len(fields) != len(names):
            raise BadInput(f"{path} row {number} has {len(fields)} fields where {origin} {len(names)}")
        rows.append(dict(zip(names, fields, strict=True)))
    return rows
