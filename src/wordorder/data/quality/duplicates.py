"""Duplicates within splits and leaks between them: texts of the same words, and texts that are nearly the same.

Near-duplicates are found without comparing each text with each, by MinHash and locality-sensitive hashing. Broder 1997,
"On the resemblance and containment of documents": the similarity of two texts is the share of the runs of five words
that both have among those that either has (Jaccard). Of each text 128 numbers are kept, each the smallest of its runs
under another hash function; two texts have the same n-th number with exactly the probability that is their similarity.
So the share of equal numbers estimates it, with a standard deviation of at most 0.05.

Texts are candidates for each other when they agree in one of 32 bands of four numbers (Indyk and Motwani 1998): at a
similarity of 0.8 that is missed once in ten million times. Of a text 0.5 kB are kept, so millions fit into memory.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from wordorder.data.names import SPLITS
from wordorder.data.quality.same_text import normalised, short_hash
from wordorder.data.randomness import counter_hash, splitmix64

BETWEEN = (("train", "validation"), ("train", "test"), ("validation", "test"))
_SHOWN = 80  # characters of a text in an example

Signature = npt.NDArray[np.uint32]

RUN = 5
"""Words of a run."""
NUMBERS, BANDS = 128, 32
_AT_A_TIME = 4096  # runs that are hashed together: 4 MB
_LARGE_BAND = 16  # texts of a band that are all compared with each other; of more, each with the first ones

_FACTOR_K = counter_hash(0x31337, np.arange(NUMBERS)) | np.uint64(1)
_TERM_K = counter_hash(0x31338, np.arange(NUMBERS))


class Signatures:
    """Makes signatures of texts; remembers the hash of each word."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}

    def of(self, words: Sequence[str]) -> Signature:
        """Return the signature of a text, its 128 numbers; fewer words than a run has are a run."""
        hashes = np.array([self._hash(word) for word in words], np.uint64)
        size = min(RUN, len(hashes))
        state = np.zeros(len(hashes) - size + 1, np.uint64)  # of each run; the order of its words counts
        for place in range(size):
            state = splitmix64(state ^ hashes[place : len(hashes) - size + 1 + place])
        runs = np.unique(state)
        smallest = np.full(NUMBERS, np.iinfo(np.uint64).max, np.uint64)
        for first in range(0, len(runs), _AT_A_TIME):
            hashed = runs[first : first + _AT_A_TIME, None] * _FACTOR_K + _TERM_K
            smallest = np.minimum(smallest, hashed.min(axis=0))
        return (smallest >> np.uint64(32)).astype(np.uint32)

    def _hash(self, word: str) -> int:
        found = self._words.get(word)
        if found is None:
            found = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
            self._words[word] = found
        return found


def near_pairs(signatures: npt.NDArray[np.uint32], threshold: float) -> list[tuple[int, int, float]]:
    """Return the pairs of texts whose estimated similarity reaches a threshold: (one, a later one, similarity), sorted.

    Args:
        signatures: of all texts, shape (texts, 128).
        threshold: from 0.5 on; below that the bands miss many.
    """
    found: dict[tuple[int, int], float] = {}
    rows = NUMBERS // BANDS
    for band in range(BANDS):
        part = signatures[:, band * rows : (band + 1) * rows].astype(np.uint64)
        key = np.zeros(len(part), np.uint64)
        for row in range(rows):
            key = splitmix64(key ^ part[:, row])
        order = np.argsort(key, kind="stable")
        borders = np.flatnonzero(np.diff(key[order])) + 1
        for group in np.split(order, borders):
            _compare(group.tolist(), signatures, threshold, found)
    return sorted((one, other, similarity) for (one, other), similarity in found.items())


def _compare(
    group: list[int], signatures: npt.NDArray[np.uint32], threshold: float, found: dict[tuple[int, int], float]
) -> None:
    for place, one in enumerate(group[:_LARGE_BAND]):
        others = [other for other in group[place + 1 :] if (one, other) not in found]
        if others:
            similarity = (signatures[others] == signatures[one]).mean(axis=1).tolist()
            found |= {(one, n): value for n, value in zip(others, similarity, strict=True) if value >= threshold}


class Duplicates:
    """Collects texts one by one, and reports at the end which of them are the same, or nearly so.

    Of each different text a signature and its beginning are kept, about 0.7 kB, and of each text its hash.

    Args:
        threshold: similarity from which texts are nearly the same.
    """

    def __init__(self, threshold: float = 0.8) -> None:
        if not 0.5 <= threshold <= 1:
            raise ValueError(f"threshold must lie between 0.5 and 1, got {threshold}")
        self._threshold = threshold
        self._sign = Signatures()
        self._numbers: dict[bytes, int] = {}
        self._signatures: list[Signature] = []
        self._beginnings: list[dict[str, str]] = []  # for each different text, its beginning in each split
        self._counts: list[Counter[str]] = []  # for each different text: split -> how often

    def add(self, split: str, text: str) -> None:
        """Add a text."""
        words = normalised(text)
        name = short_hash(words)
        number = self._numbers.setdefault(name, len(self._counts))
        if number == len(self._counts):
            self._signatures.append(self._sign.of(words.split()))
            self._beginnings.append({})
            self._counts.append(Counter())
        self._beginnings[number].setdefault(split, " ".join(text.split())[:_SHOWN])
        self._counts[number][split] += 1

    def report(self, *, examples: int = 3) -> dict[str, Any]:
        """Return the duplicates that were found, as plain values.

        Args:
            examples: of each pair of splits, the most similar ones.

        Returns:
            within: split -> documents, exact (texts whose words another text before it has), near (other texts that are
            nearly the same as one before it). between: for each pair of splits that both have texts, earlier, later,
            exact and near (texts of the later one that the earlier one has), share (of the later one's texts, both
            kinds together), examples. threshold: as given.
        """
        pairs = near_pairs(np.stack(self._signatures), self._threshold) if self._signatures else []
        similar: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for one, other, similarity in pairs:
            similar[one].append((similarity, other))
            similar[other].append((similarity, one))
        present = [split for split in SPLITS if any(split in counts for counts in self._counts)]
        return {
            "threshold": self._threshold,
            "within": {split: self._within(split, similar) for split in present},
            "between": [
                self._between(earlier, later, similar, examples)
                for earlier, later in BETWEEN
                if earlier in present and later in present
            ],
        }

    def _within(self, split: str, similar: dict[int, list[tuple[float, int]]]) -> dict[str, int]:
        own = [number for number, counts in enumerate(self._counts) if counts[split]]
        return {
            "documents": sum(self._counts[number][split] for number in own),
            "exact": sum(self._counts[number][split] - 1 for number in own),
            "near": sum(
                any(other < number and self._counts[other][split] for _, other in similar.get(number, ()))
                for number in own
            ),
        }

    def _between(
        self, earlier: str, later: str, similar: dict[int, list[tuple[float, int]]], examples: int
    ) -> dict[str, object]:
        exact = near = total = 0
        found: list[tuple[float, int, int]] = []
        for number, counts in enumerate(self._counts):
            total += counts[later]
            if not counts[later]:
                continue
            if counts[earlier]:
                exact += counts[later]
                found.append((1.0, number, number))
                continue
            matches = [match for match in similar.get(number, ()) if self._counts[match[1]][earlier]]
            if matches:
                near += counts[later]
                similarity, other = max(matches, key=lambda match: (match[0], -match[1]))
                found.append((similarity, number, other))
        found.sort(key=lambda match: (-match[0], match[1]))
        return {
            "earlier": earlier,
            "later": later,
            "exact": exact,
            "near": near,
            "share": (exact + near) / max(1, total),
            "examples": [
                {
                    "similarity": round(value, 3),
                    later: self._beginnings[number][later],
                    earlier: self._beginnings[other][earlier],
                }
                for value, number, other in found[:examples]
            ],
        }
