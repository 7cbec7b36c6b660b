"""Pairs of sentences in files of lines: two files that translate each other, and SCAN's commands with their actions."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wordorder.data.corpora.document import Document, same_text
from wordorder.data.corpora.plain_text import decode
from wordorder.errors import BadInput
from wordorder.limits import check_plain

_SCAN_LINE = re.compile(r"IN:\s*(\S.*?)\s+OUT:\s*(\S.*?)\s*")
_BEGINNING = 4096  # bytes that tell what a file is


def read_line_pairs(source: Path, target: Path, *, name: str) -> list[tuple[str, str]]:
    """Return (sentence, translation), one of each pair of lines; white space around them is left out.

    Where one file has more lines and all of these are empty, they are passed over, and so are empty lines that both
    files end with. All other empty lines stay, as empty texts: what is to become of them the reader of the pairs knows.

    Args:
        target: the translation of each line of `source`, line by line.
        name: the name of [data] that holds source, without `source`: "", "validation_" or "test_".
    """
    names = f"data.{name}source", f"data.{name}target_source"
    for option, path in zip(names, (source, target), strict=True):
        if not path.is_file():
            raise BadInput(f"{option} {path} is not a file; with {names[1]} both hold one sentence a line")
    texts, translations = _lines(source), _lines(target)
    shorter = min(len(texts), len(translations))
    if any(line.strip() for line in (*texts[shorter:], *translations[shorter:])):
        raise BadInput(
            f"{names[0]} {source} has {len(texts):,} lines and {names[1]} {target} has {len(translations):,}: "
            "each line must translate the line of the same number"
        )
    pairs = [(text.strip(), other.strip()) for text, other in zip(texts, translations, strict=False)]
    while pairs and pairs[-1] == ("", ""):
        pairs.pop()
    return pairs


def _lines(path: Path) -> list[str]:
    # Only "\n" ends a line: form feeds and Unicode's line separators occur within sentences.
    lines = decode(path, keep_returns=True).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def keep_translations_together(documents: Sequence[Document]) -> list[Document]:
    """Put pairs that share a sentence on either side into one group, which no split divides.

    A model that learned "Ein Mann liest." from one English sentence knows half of a test pair that has it beside
    another one.
    """
    parent = list(range(len(documents)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    first: dict[tuple[int, str], int] = {}
    for number, document in enumerate(documents):
        for side, text in enumerate((same_text(document.text), same_text(document.pair or ""))):
            here, there = root(number), root(first.setdefault((side, text), number))
            parent[max(here, there)] = min(here, there)
    return [
        replace(document, group=same_text(documents[root(number)].text)) for number, document in enumerate(documents)
    ]


def is_scan(path: Path) -> bool:
    """Return whether a file begins as SCAN's files do: ``IN:`` and, in the same line, ``OUT:``."""
    if path.suffix.lower() != ".txt" or not path.is_file():
        return False
    check_plain(path)
    with path.open("rb") as file:
        first = file.read(_BEGINNING).lstrip().partition(b"\n")[0]
    return _SCAN_LINE.fullmatch(first.decode("utf-8", errors="replace")) is not None


def read_scan(path: Path) -> list[tuple[str, str]]:
    """Return (command, actions) of each line that is not blank: ``IN: jump twice OUT: I_JUMP I_JUMP``.

    Lake and Baroni 2018, "Generalization without Systematicity", https://arxiv.org/abs/1711.00350.
    """
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(decode(path).split("\n"), start=1):
        found = _SCAN_LINE.fullmatch(line.strip())
        if found is not None:
            pairs.append((found[1], found[2]))
        elif line.strip():
            raise BadInput(f"{path} line {number} is not of the form 'IN: command OUT: actions': {line[:60]!r}")
    return pairs
