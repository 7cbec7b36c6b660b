"""Readers of files, one function a format. A new format is a file here and a line in `READERS`; see CONTRIBUTING.md."""

from pathlib import Path
from typing import NamedTuple

from wordorder.data.readers.delimited import read_csv, read_tsv
from wordorder.data.readers.json_lines import read_json_lines
from wordorder.data.readers.lines import PACKED
from wordorder.data.readers.parquet import read_parquet
from wordorder.data.readers.reader import Fault, Note, Part, Reader, Reading, Row, stamp_of
from wordorder.data.readers.text import read_text, read_wikitext


class Format(NamedTuple):
    """A format of files."""

    read: Reader
    endings: tuple[str, ...]
    """Endings of the names of such files."""
    running: bool = False
    """True for running text, which has no columns."""
    delimited: bool = False
    """True where data.columns, data.delimiter and data.quoting say how it is read."""


READERS = {
    "text": Format(read_text, (".txt",), running=True),
    "tokens": Format(read_wikitext, (".tokens",), running=True),
    "jsonl": Format(read_json_lines, (".jsonl", ".ndjson")),
    "csv": Format(read_csv, (".csv",), delimited=True),
    "tsv": Format(read_tsv, (".tsv",), delimited=True),
    "parquet": Format(read_parquet, (".parquet",)),
}
"""Value of data.format -> format."""

ENDINGS = {ending: name for name, kind in READERS.items() for ending in kind.endings}
"""Ending of a file's name -> value of data.format."""


def format_of(path: Path) -> str | None:
    """Return the format that the ending of a file's name says, in any letter case, packed or not, or None."""
    suffixes = ["", *(suffix.lower() for suffix in path.suffixes)]
    return ENDINGS.get(suffixes[-2] if suffixes[-1] in PACKED else suffixes[-1])


__all__ = [
    "ENDINGS",
    "PACKED",
    "READERS",
    "Fault",
    "Format",
    "Note",
    "Part",
    "Reader",
    "Reading",
    "Row",
    "format_of",
    "stamp_of",
]
