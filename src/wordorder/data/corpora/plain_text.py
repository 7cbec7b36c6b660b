"""UTF-8 text files: one document per file, or one long file cut into documents."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from wordorder.data.corpora.document import Row
from wordorder.data.corpora.lines import START, Found, Place, lines_of, text_of_line
from wordorder.errors import BadInput
from wordorder.limits import check_plain

WHOLE_FILE = 2**20
"""A streamed text file of at most so many bytes is one document; a larger one is cut into documents."""
DOCUMENT, LONGEST = 10_000, 50_000
"""Bytes after which a document of a larger text file ends: at the next blank line, or at the latest at a line end."""
_BORDERS = (r"\n[^\S\n]*\n\s*", r"\n", r"\s")  # blank line, line, space


def decode(path: Path, *, keep_returns: bool = False) -> str:
    """Read a UTF-8 file with any line ends; a byte order mark at its start is left out.

    Args:
        keep_returns: a carriage return alone is a character of its line, as where lines are counted, and ends none.

    Raises:
        BadInput: the file is empty, binary or not UTF-8; the line names the file and the byte.
    """
    check_plain(path)
    content = path.read_bytes()
    if (offset := content.find(b"\0")) >= 0:
        raise BadInput(f"{path} is binary: byte {offset} is 0")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}") from error
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    text = text if keep_returns else text.replace("\r", "\n")
    if not text.strip():
        raise BadInput(f"{path} is empty")
    return text


def read_text(path: Path) -> list[Row]:
    """Return one row: `text`, and `label`, the name of the folder that holds the file."""
    return [{"text": decode(path), "label": path.resolve().parent.name}]


def cut_into_documents(text: str) -> list[str]:
    """Cut one long text into about 100 documents of whole paragraphs, so that it can be split at all.

    A document ends at the first blank line after 1 % of the characters, at least 500 and at most 10,000. Where the
    text has fewer than 20 blank lines, line ends are used instead, and where there are too few of these, white space.
    Neighbours in one text stay related, so splits of one file are easier than splits of many files.
    """
    target = min(max(len(text) // 100, 500), 10_000)
    ends: list[int] = []
    for border in _BORDERS:
        ends = [match.end() for match in re.finditer(border, text.strip())]
        if len(ends) >= 20:
            break
    start = 0
    documents: list[str] = []
    for end in ends:
        if end - start >= target:
            documents.append(text[start:end])
            start = end
    return [*documents, text[start:]] if text[start:].strip() else documents


def read_pieces(
    path: Path, place: Place = START, columns: Sequence[str] | None = None, *, whole: bool = False
) -> Iterator[Found]:
    """Yield the documents of a text that is streamed: the whole file where it is small, else pieces of it.

    The pieces end at blank lines. They are other documents than `cut_into_documents` makes, which has to have seen all
    of the text to know how many there are.
    """
    small = path.stat().st_size <= WHOLE_FILE
    held: list[bytes] = []
    size, first, after = 0, place.line + 1, place
    for line in lines_of(path, place, at_returns=False):
        if isinstance(line, Found):
            yield line._replace(line=first)
            return
        content, *there = line
        after = Place(*there)
        held.append(content)
        size += len(content)
        blank = not content.strip()
        if not small and ((blank and size >= DOCUMENT) or size >= LONGEST):
            yield _document(b"".join(held), path, first, after)
            held, size, first = [], 0, after.line + 1
    if held:
        yield _document(b"".join(held), path, first, after)


def _document(content: bytes, path: Path, first: int, after: Place) -> Found:
    text = text_of_line(content, path, after)
    if isinstance(text, Found):
        fault = text.fault.replace(f"line {after.line}", f"text from line {first}", 1)
        return Found(None, first, after, fault)
    return Found({"text": text.replace("\r\n", "\n").replace("\r", "\n")}, first, after)
