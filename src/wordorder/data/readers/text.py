"""Running text: files that are one text each, WikiText's articles, lines that translate each other, SCAN's commands."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path

from wordorder.data.readers.lines import lines_of, plain
from wordorder.data.readers.reader import Fault, Note, Reading, Row
from wordorder.errors import BadInput

_MOST_WHOLE = 2**26
"""Characters up to which a text is cut into documents by all of its borders; a longer one is cut line by line."""
_LONGEST = 10_000
"""Characters after which a document ends at the next border."""
_BORDERS = (r"\n[^\S\n]*\n\s*", r"\n", r"\s")  # blank line, line, space
_TITLE = re.compile(r" = [^=\n](?:.*[^=\n])? = \n")  # sections have two equals signs or more
_SCAN_LINE = re.compile(r"IN:\s*(\S.*?)\s+OUT:\s*(\S.*?)\s*")
_BEGINNING = 4096  # bytes that tell what a file is


def read_text(path: Path, reading: Reading) -> Iterator[Row | Fault | Note]:
    """Yield `text` and `label`, the name of the file's folder; where the file is alone, for each of its documents."""
    lines = _plain_lines(path, reading)
    return _rows(path, _documents(lines) if reading.alone else _joined(lines))


def read_wikitext(path: Path, reading: Reading) -> Iterator[Row | Fault | Note]:
    """Yield one row per article, with its title, which stands between single equals signs, in the text.

    Merity et al. 2016, "Pointer Sentinel Mixture Models", https://arxiv.org/abs/1609.07843. A file without a title is
    a text like any other. `<unk>` and the marks of numbers and hyphens (`@,@`, `@.@`, `@-@`) stay as they are. The
    label is the name of the folder, as for .txt.
    """
    return _rows(path, _articles(_plain_lines(path, reading), alone=reading.alone))


def _rows(path: Path, texts: Iterable[str | Fault]) -> Iterator[Row | Fault]:
    label = path.absolute().parent.name
    for number, text in enumerate(texts, start=1):
        yield text if isinstance(text, Fault) else Row({"text": text, "label": label}, f"text {number}")


def _plain_lines(path: Path, reading: Reading) -> Iterator[str | Fault]:
    """Yield the lines of a text; nothing comes after a fault, and nothing but a fault where all of them are blank."""
    leading, empty = list[str](), True
    for line in lines_of(path, reading.encoding):
        if isinstance(line, Fault):
            yield line
            return
        text = plain(line[1])
        if empty and text.isspace():
            leading.append(text)
            continue
        if empty:
            yield from leading
        empty = False
        yield text
    if empty:
        yield Fault(f"{path} is empty")


def _joined(lines: Iterator[str | Fault]) -> Iterator[str | Fault]:
    pieces = list[str]()
    for line in lines:
        if isinstance(line, Fault):
            yield line
            return
        pieces.append(line)
    yield "".join(pieces)


def _documents(lines: Iterator[str | Fault]) -> Iterator[str | Fault]:
    pieces, size = list[str](), 0
    for line in lines:
        if isinstance(line, Fault):
            yield line
            return
        pieces.append(line)
        size += len(line)
        if size > _MOST_WHOLE:
            yield from _by_line(chain(pieces, lines))
            return
    yield from cut_into_documents("".join(pieces))


def cut_into_documents(text: str) -> list[str]:
    """Cut one long text into about 100 documents of whole paragraphs, so that it can be split at all.

    A document ends at the first blank line after 1 % of the characters, at least 500 and at most 10,000. Where the
    text has fewer than 20 blank lines, line ends are used instead, and where there are too few of these, white space.
    Neighbours in one text stay related, so splits of one file are easier than splits of many files.
    """
    target = min(max(len(text) // 100, 500), _LONGEST)
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


def _by_line(lines: Iterable[str | Fault]) -> Iterator[str | Fault]:
    """Cut as `cut_into_documents` does a long text, without holding it; at a line end where no blank line comes."""
    pieces, size, blank = list[str](), 0, False
    for line in lines:
        if isinstance(line, Fault):
            yield line
            return
        if size >= 100 * _LONGEST or (size >= _LONGEST and blank and not line.isspace()):
            yield "".join(pieces)
            pieces, size = [], 0
        pieces.append(line)
        size += len(line)
        blank = line.isspace()
    if any(not piece.isspace() for piece in pieces):
        yield "".join(pieces)


def _articles(lines: Iterator[str | Fault], *, alone: bool) -> Iterator[str | Fault]:
    """Cut before the blank line above each title but the first.

    A title has a blank line before and after it; " = 0 = ", a formula that the tokeniser broke off, has not.
    """
    pieces, titles = list[str](), 0
    below = -1  # number of the line below the last title, which is not above the next one too
    for number, line in enumerate(lines):
        if isinstance(line, Fault):
            yield line
            return
        if line.isspace() and len(pieces) > 1 and _TITLE.fullmatch(pieces[-1]) and pieces[-2].isspace():
            if number - 2 != below:
                titles, below = titles + 1, number
                if titles > 1:
                    yield "".join(pieces[:-2])
                    pieces = pieces[-2:]
        pieces.append(line)
    text = "".join(pieces)
    yield from cut_into_documents(text) if alone and titles < 2 else [text]


def is_scan(path: Path) -> bool:
    """Return whether a file begins as SCAN's files do: ``IN:`` and, in the same line, ``OUT:``."""
    if path.suffix.lower() != ".txt" or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            first = file.read(_BEGINNING).lstrip().partition(b"\n")[0]
    except OSError:  # which its reader tells
        return False
    return _SCAN_LINE.fullmatch(first.decode("utf-8", errors="replace")) is not None


def read_scan(path: Path, reading: Reading) -> Iterator[Row | Fault | Note]:
    """Yield `text`, the command, and `target`, the actions, of each line: ``IN: jump twice OUT: I_JUMP I_JUMP``.

    Lake and Baroni 2018, "Generalization without Systematicity", https://arxiv.org/abs/1711.00350.
    """
    for line in lines_of(path, reading.encoding):
        if isinstance(line, Fault):
            yield line
            continue
        number, text = line
        match = _SCAN_LINE.fullmatch(text.strip())
        if match is not None:
            yield Row({"text": match[1], "target": match[2]}, f"line {number}")
        elif text.strip():
            yield Fault(f"{path} line {number} is not of the form 'IN: command OUT: actions': {text.strip()[:60]!r}")


def read_line_pairs(
    source: Path, target: Path, reading: Reading, *, names: tuple[str, str]
) -> Iterator[Row | Fault | Note]:
    """Yield `text` and `target`, its translation, of each pair of lines, without the white space around them.

    Where one file has more lines and all of these are empty, they are passed over, and so are empty lines that both
    files end with. All other empty lines stay, as empty texts.

    Args:
        names: of [data], that hold both files.

    Raises:
        BadInput: one of them is no file, or empty, or one has more lines.
    """
    for name, path in zip(names, (source, target), strict=True):
        if not path.is_file():
            raise BadInput(f"{name} {path} is not a file; with {names[1]} both hold one sentence a line")
    counts, filled, held_back, uneven = [0, 0], [False, False], list[Row](), False
    # form feeds, returns and Unicode's line separators occur within sentences
    for pair in zip_longest(*(lines_of(path, reading.encoding, end="\n") for path in (source, target))):
        yield from (line for line in pair if isinstance(line, Fault))
        texts = ["" if line is None or isinstance(line, Fault) else line[1].strip() for line in pair]
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        filled = [before or bool(text) for before, text in zip(filled, texts, strict=True)]
        uneven = uneven or (None in pair and any(texts))
        if not uneven and not any(line is None or isinstance(line, Fault) for line in pair):
            held_back.append(Row({"text": texts[0], "target": texts[1]}, f"line {counts[0]}"))
            if any(texts):
                yield from held_back
                held_back = []
    for path, has_text in zip((source, target), filled, strict=True):
        if not has_text:
            raise BadInput(f"{path} is empty")
    if uneven:
        raise BadInput(
            f"{names[0]} {source} has {counts[0]:,} lines and {names[1]} {target} has {counts[1]:,}: "
            "each line must translate the line of the same number"
        )
