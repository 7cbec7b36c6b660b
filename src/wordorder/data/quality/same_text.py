"""Texts that are the same for a purpose: but for white space, or but for case and punctuation too; and their hashes."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping

from wordorder.data.corpora.document import Document, same_text

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
