"""Duplicates within splits and leaks between them: texts of the same words, and texts that are nearly the same."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from wordorder.data.names import SPLITS
from wordorder.data.quality.near_duplicates import Signature, Signatures, near_pairs
from wordorder.data.quality.same_text import normalised, short_hash

BETWEEN = (("train", "validation"), ("train", "test"), ("validation", "test"))
_SHOWN = 80  # characters of a text in an example


class Duplicates:
    """Collects texts one by one, and reports at the end which of them are the same, or nearly so.

    Of each different text a signature and its beginning are kept, about 0.7 kB, and of each text its hash.

    Args:
        threshold: similarity from which texts are nearly the same; see `near_duplicates`.
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
