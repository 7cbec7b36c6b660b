"""JSON Lines: one object a line, whose keys are the columns."""

from collections.abc import Iterator
from pathlib import Path

from wordorder.data.readers.lines import lines_of
from wordorder.data.readers.reader import Fault, Note, Reading, Row
from wordorder.files import parse_json


def read_json_lines(path: Path, reading: Reading) -> Iterator[Row | Fault | Note]:
    """Yield one row per line that is not blank."""
    empty = True
    for line in lines_of(path, reading.encoding):
        if isinstance(line, Fault):
            empty = False
            yield line
            continue
        number, text = line
        if text.isspace():
            continue
        empty = False
        try:
            values = parse_json(text.rstrip("\r\n"))
        except ValueError as error:
            yield Fault(f"{path} line {number} is not JSON: {error}")
            continue
        if isinstance(values, dict):
            yield Row(values, f"line {number}")
        else:
            yield Fault(f"{path} line {number} is not a JSON object with named columns")
    if empty:
        yield Fault(f"{path} is empty")
