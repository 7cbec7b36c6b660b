"""UTF-8 text files, and WikiText's files of tokens: one document per file or article, or one text to be cut."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from wordorder.data.corpora.lines import Found
from wordorder.errors import BadInput
from wordorder.limits import check_plain

_BLOCK = 2**20  # bytes
_BORDERS = (r"\n[^\S\n]*\n\s*", r"\n", r"\s")  # blank line, line, space
# A title has a blank line before and after it; " = 0 = ", a formula that the tokeniser broke off, has not. Sections
# have two equals signs or more.
_TITLE = re.compile(r"^[^\S\n]*\n = [^=\n](?:.*[^=\n])? = \n[^\S\n]*\n", re.MULTILINE)


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
