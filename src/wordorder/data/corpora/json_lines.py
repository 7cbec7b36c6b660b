"""JSON Lines, as they are or packed by gzip: one object per line, its keys are the columns."""

from pathlib import Path
from typing import cast

from wordorder.data.corpora.document import Row
from wordorder.data.corpora.gzipped import unpack
from wordorder.data.corpora.plain_text import decode, decode_content
from wordorder.errors import BadInput
from wordorder.limits import parse_json


def read_json_lines(path: Path) -> list[Row]:
    """Return one row per line that is not blank.

    Raises:
        BadInput: the file is not UTF-8 text, or a line is not a JSON object; the first such line is named.
    """
    return _rows(decode(path), path)


def read_packed_json_lines(path: Path) -> list[Row]:
    """Return one row per line that is not blank, of a file that gzip packed.

    Raises:
        BadInput: as `read_json_lines`; or the file is no gzip file, is damaged or cut off, or holds too much.
    """
    return _rows(decode_content(unpack(path), path), path)


def _rows(text: str, path: Path) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row: object = parse_json(line)
        except ValueError as error:
            raise BadInput(f"{path} line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise BadInput(f"{path} line {number} is not a JSON object with named columns")
        rows.append(cast(Row, row))
    return rows
