"""Texts that are the same for a purpose: but for white space, or but for case and punctuation too; and their hashes."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from wordorder.data.corpora.document import Document, same_text
from wordorder.data.names import ERROR, IGNORE
from wordorder.data.quality.reading_log import LEAKS, ReadingLog
from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput

_BETWEEN_WORDS = re.compile(r"[\W_]+")


def normalised(text: str) -> str:
    """Return the words of a text in small letters, compatible characters made one (NFKC), set apart by one space.

    A text without a letter or digit is left as it is, but for white space: all of them would be the same otherwise.
    """
    words = _BETWEEN_WORDS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return words or same_text(text)


def short_hash(text: str) -> bytes:
    """Return 12 bytes that name a text: among a thousand million texts two share them by chance once in 10^11 times."""
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


class HeldOut:
    """The texts of validation and test, as hashes, to be found again among those of training.

    Args:
        parts: name of a split -> its documents; the later one names a text that both have.
    """

    def __init__(self, parts: Mapping[str, Iterable[Document]]) -> None:
        self._same: dict[bytes, str] = {}
        self._normalised: dict[bytes, str] = {}
        for name, documents in parts.items():
            for document in documents:
                self._same[short_hash(same_text(document.text))] = name
                self._normalised[short_hash(normalised(document.text))] = name

    def copy_of(self, text: str) -> str | None:
        """Return the split that holds the same text but for white space, or None."""
        return self._same.get(short_hash(same_text(text)))

    def leak_of(self, text: str) -> str | None:
        """Return the split that holds the same words, see `normalised`, or None."""
        return self._normalised.get(short_hash(normalised(text)))


_MOST_NAMED = 3


def check_leakage(train: Sequence[Document], held_out: HeldOut, data: DataSettings, log: ReadingLog) -> None:
    """Count training texts whose words are those of a text of validation or test; case and punctuation may differ.

    Texts that differ in white space alone are not there any more: splitting leaves them out of training. Of labelled
    pairs the first text alone says little, and of translations both sides have been looked at: neither is checked.
    Splits of generated texts are drawn apart.
    """
    generated = data.generated is not None  # without its punctuation a text is another one
    if data.leakage == IGNORE or generated or any(document.pair is not None for document in train[:1]):
        return
    for number, document in enumerate(train, start=1):
        split = held_out.leak_of(document.text)
        if split is not None:
            log.count(LEAKS, "train", number, f"{document.text.strip()[:60]!r} is in {split}")
    found = log.number(LEAKS)
    if found and data.leakage == ERROR:
        raise BadInput(
            f"data.source {data.source}: {found} {log.words(LEAKS)}: {'; '.join(log.first(LEAKS)[:_MOST_NAMED])}; "
            'take them out, or set data.leakage="warn"; `wordorder data` shows more'
        )
