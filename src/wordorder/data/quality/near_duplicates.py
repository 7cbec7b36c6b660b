"""Find texts that are nearly the same without comparing each with each: MinHash and locality-sensitive hashing.

Broder 1997, "On the resemblance and containment of documents": the similarity of two texts is the share of the runs of
five words that both have among those that either has (Jaccard). Of each text 128 numbers are kept, each the smallest of
its runs under another hash function; two texts have the same n-th number with exactly the probability that is their
similarity. So the share of equal numbers estimates it, with a standard deviation of at most 0.05.

Texts are candidates for each other when they agree in one of 32 bands of four numbers (Indyk and Motwani 1998): at a
similarity of 0.8 that is missed once in ten million times. Of a text 0.5 kB are kept, so millions fit into memory.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wordorder.data.randomness import Words, counter_hash, splitmix64

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
        """Return the signature of a text, its 128 numbers.

        Args:
            words: of the text, normalised; at least one. Fewer than a run has are a run.
        """
        hashes = np.array([self._hash(word) for word in words], np.uint64)
        runs = np.unique(_runs(hashes))
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


def _runs(hashes: Words) -> Words:
    """Hash each run of words; their order counts."""
    size = min(RUN, len(hashes))
    state = np.zeros(len(hashes) - size + 1, np.uint64)
    for place in range(size):
        state = splitmix64(state ^ hashes[place : len(hashes) - size + 1 + place])
    return state


def near_pairs(signatures: npt.NDArray[np.uint32], threshold: float) -> list[tuple[int, int, float]]:
    """Return the pairs of texts whose estimated similarity reaches a threshold.

    Each is (one, a later one, similarity); they are sorted.

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
            if len(group) > 1:
                _compare(np.sort(group).tolist(), signatures, threshold, found)
    return sorted((one, other, similarity) for (one, other), similarity in found.items())


def _compare(
    group: list[int], signatures: npt.NDArray[np.uint32], threshold: float, found: dict[tuple[int, int], float]
) -> None:
    for place, one in enumerate(group[:_LARGE_BAND]):
        others = [other for other in group[place + 1 :] if (one, other) not in found]
        if not others:
            continue
        similarity = (signatures[others] == signatures[one]).mean(axis=1)
        for other, value in zip(others, similarity.tolist(), strict=True):
            if value >= threshold:
                found[one, other] = value
