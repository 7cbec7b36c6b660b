"""SCAN's files (.txt): in each line a command and the actions it stands for, ``IN: jump twice OUT: I_JUMP I_JUMP``.

Lake and Baroni 2018, "Generalization without Systematicity", https://arxiv.org/abs/1711.00350.
"""

import re
from pathlib import Path

from wordorder.data.corpora.plain_text import decode
from wordorder.errors import BadInput
from wordorder.limits import check_plain

_LINE = re.compile(r"IN:\s*(\S.*?)\s+OUT:\s*(\S.*?)\s*")
_BEGINNING = 4096  # bytes that tell what a file is


def is_scan(path: Path) -> bool:
    """Return whether a file begins as SCAN's files do: ``IN:`` and, in the same line, ``OUT:``."""
    if path.suffix != ".txt" or not path.is_file():
        return False
    check_plain(path)
    with path.open("rb") as file:
        first = file.read(_BEGINNING).lstrip().partition(b"\n")[0]
    return _LINE.fullmatch(first.decode("utf-8", errors="replace")) is not None


def read_scan(path: Path) -> list[tuple[str, str]]:
    """Return (command, actions) of each line that is not blank.

    Raises:
        BadInput: the file is not UTF-8, or a line is not of this form; the first such line is named.
    """
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(decode(path).split("\n"), start=1):
        found = _LINE.fullmatch(line.strip())
        if found is not None:
            pairs.append((found[1], found[2]))
        elif line.strip():
            raise BadInput(f"{path} line {number} is not of the form 'IN: command OUT: actions': {line[:60]!r}")
    return pairs
