"""Texts that are the same for a purpose: but for white space, or but for case and punctuation too; and their hashes."""

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wordorder.data.corpora.document import Document, same_text
from wordorder.data.reading_log import LEAKS, ReadingLog
from wordorder.data.settings import ERROR, IGNORE, SPLITS, DataSettings
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
        self._normalised: dict[bytes, str] = {}
        for name, documents in parts.items():
            for document in documents:
                self._normalised[short_hash(normalised(document.text))] = name

    def leak_of(self, text: str) -> str | None:
        return self._normalised.get(short_hash(normalised(text)))


def check_leakage(train: Sequence[Document], held_out: HeldOut, data: DataSettings, log: ReadingLog) -> None:
    """Count training texts whose words are those of a text of validation or test; case and punctuation may differ.

    Texts that differ in white space alone are not there any more: splitting leaves them out of training. Of labelled
    pairs the first text alone says little, and of translations both sides have been looked at: neither is checked.
    Splits of generated texts are drawn apart.
    """
    generated = data.generated is not None  # without its punctuation a text is another one
    if data.leakage == IGNORE or generated or any(document.pair is not None for document in train[:1]):
        return
    for document in train:
        split = held_out.leak_of(document.text)
        if split is not None:
            log.count(LEAKS, "train", f"{document.text.strip()[:60]!r} is in {split}")
    if log.number(LEAKS) and data.leakage == ERROR:
        raise BadInput(
            f"data.source {data.source}: {log.line(LEAKS)}; "
            'take them out, or set data.leakage="warn"; `wordorder data` shows more'
        )


_BETWEEN = (("train", "validation"), ("train", "test"), ("validation", "test"))
_SHOWN = 80  # characters of a text in an example


class Duplicates:
    """Collects texts one by one, and reports at the end which of them have the same words, see `normalised`."""

    def __init__(self) -> None:
        self._counts: defaultdict[bytes, Counter[str]] = defaultdict(Counter)  # of each text: split -> how often
        self._beginnings: dict[tuple[bytes, str], str] = {}

    def add(self, split: str, text: str) -> None:
        name = short_hash(normalised(text))
        self._counts[name][split] += 1
        self._beginnings.setdefault((name, split), " ".join(text.split())[:_SHOWN])

    def report(self, *, examples: int = 3) -> dict[str, Any]:
        """Return the duplicates that were found, as plain values.

        Args:
            examples: to give of each pair of splits, the first ones.

        Returns:
            within: split -> documents, exact (texts whose words another text before it has). between: for each pair of
            splits that both have texts, earlier, later, exact (texts of the later one that the earlier one has), share
            (of the later one's texts), examples.
        """
        total = sum(self._counts.values(), Counter[str]())
        different = Counter(split for _, split in self._beginnings)
        between: list[dict[str, Any]] = []
        for earlier, later in _BETWEEN:
            if earlier in total and later in total:
                both = [name for name, counts in self._counts.items() if counts[earlier] and counts[later]]
                exact = sum(self._counts[name][later] for name in both)
                shown = [
                    {split: self._beginnings[name, split] for split in (later, earlier)} for name in both[:examples]
                ]
                found = {"earlier": earlier, "later": later, "exact": exact, "share": exact / total[later]}
                between.append({**found, "examples": shown})
        within = {
            split: {"documents": total[split], "exact": total[split] - different[split]}
            for split in SPLITS
            if split in total
        }
        return {"within": within, "between": between}
