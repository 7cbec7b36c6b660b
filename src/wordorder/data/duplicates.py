"""Texts that are the same for a purpose: but for white space, or but for case and punctuation too; and their hashes."""

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING

import numpy as np

from wordorder.data.reading_log import LEAKS, ReadingLog
from wordorder.data.settings import ERROR, IGNORE, DataSettings
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from wordorder.data.split import Split
    from wordorder.data.table import Texts

_MOST_SHOWN = 20
_BETWEEN_WORDS = re.compile(r"[\W_]+")


def same_text(text: str) -> str:
    """Return a text with each run of white space as one space: a copy is often kept with other white space."""
    return " ".join(text.split())


def words_of(text: str) -> str:
    """Return the words of a text in small letters, compatible characters made one (NFKC), set apart by one space.

    A text without a letter or digit is left as it is, but for white space: all of them would be the same otherwise.
    """
    words = _BETWEEN_WORDS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return words or same_text(text)


def short_hash(text: str) -> bytes:
    """Return 12 bytes that name a text: among a thousand million texts two share them by chance once in 10^11 times."""
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


def check_leakage(texts: "Texts", split: "Split", data: DataSettings, log: ReadingLog) -> None:
    """Count training texts whose words are those of a text of validation or test; case and punctuation may differ.

    Texts that differ in white space alone are not there any more: splitting leaves them out of training. Of labelled
    pairs the first text alone says little, and of translations both sides have been looked at: neither is checked.
    Splits of generated texts are drawn apart.
    """
    generated = data.generated is not None  # without its punctuation a text is another one
    if data.leakage == IGNORE or generated or texts.has_pairs:
        return
    words, left = texts.hashes("words"), split.train
    for name in ("test", "validation"):
        leaks = np.isin(words[left], words[split.parts()[name]])
        rows = left[leaks]
        shown = (f"{text.strip()[:60]!r} is in {name}" for text in texts.strings("text", rows[:_MOST_SHOWN]))
        log.count(LEAKS, "train", *shown, number=len(rows))
        left = left[~leaks]
    if log.number(LEAKS) and data.leakage == ERROR:
        raise BadInput(
            f"data.source {data.source}: {log.line(LEAKS)}; "
            'take them out, or set data.leakage="warn", with which `wordorder data` shows more'
        )
