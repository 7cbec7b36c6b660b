"""JSON Lines, as they are or packed by gzip: one object per line, its keys are the columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from wordorder.data.corpora.lines import START, Found, Place, lines_of, text_of_line
from wordorder.limits import parse_json


def read_json_lines(
    path: Path, place: Place = START, columns: Sequence[str] | None = None, *, whole: bool = False
) -> Iterator[Found]:
    """Yield one row per line that is not blank, of .jsonl and .jsonl.gz; see `RowReader`."""
    blank = True
    for line in lines_of(path, place, whole=whole):
        if isinstance(line, Found):
            yield line
            return
        content, offset, number = line
        after = Place(offset, number)
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
            yield Found(None, number, after, f"{path} line {number} is not JSON: {error}")
            continue
        if isinstance(row, dict):
            yield Found(row, number, after)
        else:
            yield Found(None, number, after, f"{path} line {number} is not a JSON object with named columns")
    if whole and blank:
        yield Found(None, 0, place, f"{path} is empty")
