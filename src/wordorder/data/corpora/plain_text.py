"""UTF-8 text files: one document per file, or one long file cut into documents."""

import re
from pathlib import Path

from wordorder.data.corpora.document import Row
from wordorder.errors import BadInput
from wordorder.limits import check_plain

_BORDERS = (r"\n[^\S\n]*\n\s*", r"\n", r"\s")  # blank line, line, space


def decode(path: Path, *, keep_returns: bool = False) -> str:
    """Read a UTF-8 file with any line ends; a byte order mark at its start is left out.

    Args:
        path: the file.
        keep_returns: a carriage return alone is a character of its line, as where lines are counted, and ends none.

    Raises:
        BadInput: the file is empty, binary or not UTF-8; the line names the file and the byte.
    """
    check_plain(path)
    return decode_content(path.read_bytes(), path, keep_returns=keep_returns)


def decode_content(content: bytes | bytearray, path: Path, *, keep_returns: bool = False) -> str:
    """Read the content of a UTF-8 file, as `decode`.

    Args:
        content: all of it.
        path: the file, as messages name it.
        keep_returns: see `decode`.

    Raises:
        BadInput: see `decode`.
    """
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
