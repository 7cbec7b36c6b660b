"""UTF-8 text files: documents, WikiText's articles, lines that translate each other, SCAN's commands and actions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from wordorder.data.corpora.document import Document, same_text
from wordorder.data.corpora.lines import Found
from wordorder.errors import BadInput
from wordorder.limits import check_plain

_BLOCK = 2**20  # bytes
_BORDERS = (r"\n[^\S\n]*\n\s*", r"\n", r"\s")  # blank line, line, space
# A title has a blank line before and after it; " = 0 = ", a formula that the tokeniser broke off, has not. Sections
# have two equals signs or more.
_TITLE = re.compile(r"^[^\S\n]*\n = [^=\n](?:.*[^=\n])? = \n[^\S\n]*\n", re.MULTILINE)
_SCAN_LINE = re.compile(r"IN:\s*(\S.*?)\s+OUT:\s*(\S.*?)\s*")
_BEGINNING = 4096  # bytes that tell what a file is


def decode(path: Path, *, keep_returns: bool = False) -> str:
    """Read a UTF-8 file with any line ends; a byte order mark at its start is left out.

    Args:
        keep_returns: a carriage return alone is a character of its line, as where lines are counted, and ends none.
    """
    check_plain(path)
    content = bytearray()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):  # a sparse file of terabytes is found out by its first one
            if (offset := block.find(b"\0")) >= 0:
                raise BadInput(f"{path} is binary: byte {len(content) + offset} is 0")
            content += block
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}") from error
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    text = text if keep_returns else text.replace("\r", "\n")
    if not text.strip():
        raise BadInput(f"{path} is empty")
    return text


def read_text(path: Path, columns: Sequence[str] | None = None, *, whole: bool = False) -> Iterator[Found]:
    """Yield one row, to be cut by `cut_into_documents`: `text`, and `label`, the name of the file's folder."""
    yield Found({"text": decode(path), "label": path.resolve().parent.name}, 1)


def read_wikitext(path: Path, columns: Sequence[str] | None = None, *, whole: bool = False) -> Iterator[Found]:
    """Yield one row per article, with its title, which stands between single equals signs, in the text.

    Merity et al. 2016, "Pointer Sentinel Mixture Models", https://arxiv.org/abs/1609.07843. A file without a title is
    one row. `<unk>` and the marks of numbers and hyphens (`@,@`, `@.@`, `@-@`) stay as they are. The label is the name
    of the folder, as for .txt.
    """
    text, label = decode(path), path.resolve().parent.name
    starts = [match.start() for match in _TITLE.finditer(text)]
    for number, (a, b) in enumerate(pairwise([0, *starts[1:], len(text)]), start=1):
        yield Found({"text": text[a:b], "label": label}, number)


def cut_into_documents(text: str) -> list[str]:
    """Cut one long text into about 100 documents of whole paragraphs, so that it can be split at all.

    A document ends at the first blank line after 1 % of the characters, at least 500 and at most 10,000. Where the
    text has fewer than 20 blank lines, line ends are used instead, and where there are too few of these, white space.
    Neighbours in one text stay related, so splits of one file are easier than splits of many files.
    """
    target = min(max(len(text) // 100, 500), 10_000)
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    ends: list[int] = []
    for border in _BORDERS:
        ends = [match.end() for match in re.compile(border).finditer(text, first, last)]
        if len(ends) >= 20:
            break
    start = 0
    documents: list[str] = []
    for end in ends:
        if end - start >= target:
            documents.append(text[start:end])
            start = end
    return [*documents, text[start:]] if text[start:].strip() else documents


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
            roots = root(number), root(first.setdefault((side, text), number))
            parent[max(roots)] = min(roots)
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
        match = _SCAN_LINE.fullmatch(line.strip())
        if match is not None:
            pairs.append((match[1], match[2]))
        elif line.strip():
            raise BadInput(f"{path} line {number} is not of the form 'IN: command OUT: actions': {line[:60]!r}")
    return pairs
