"""The exact test of two arms of which some runs share a seed and others do not: no run is left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from wordorder.comparison.statistics.exact_tests import EXACT_PAIRS, RESAMPLES
from wordorder.comparison.statistics.intervals import Size

_SEED = 0
_ROUNDING = 1e-9

Floats = npt.NDArray[np.floating[Any]]


def partly_paired(
    differences: Sequence[float], one: Sequence[float], other: Sequence[float], confidence: float
) -> tuple[Size, float, float]:
    """Return the size of the difference, its two-sided p-value, and the smallest p-value that so many runs can give.

    The difference is the mean of that over the pairs and that of the other runs' means, each weighed by its precision
    (a pair's difference has twice the variance of a run). If two arms are equally good, the signs of pairs and the
    labels of the other runs could as well be others, independently: the p-value is the share of all such arrangements,
    or of `RESAMPLES` random ones, that are as far from zero. The interval has the differences that this test does not
    reject.

    Args:
        differences: of the runs with a common seed.
        one: scores of the first arm's other runs, at least one.
        other: of the second arm's other runs, at least one.
        confidence: of the interval.
    """
    weights = len(differences) / 2, 1 / (1 / len(one) + 1 / len(other))
    share = weights[0] / sum(weights)
    arrangements = 2 ** len(differences) * math.comb(len(one) + len(other), len(one))
    exact = arrangements <= 2**EXACT_PAIRS
    signs_G, first_G = _all(len(differences), len(one), len(other)) if exact else _random(differences, one, other)
    labels_G = np.where(first_G, 1 / len(one), -1 / len(other))
    pairs_G = signs_G @ np.asarray(differences) / len(differences)
    found_G = share * pairs_G + (1 - share) * (labels_G @ np.asarray([*one, *other]))
    # how much of a difference that were added to the first arm an arrangement would show
    shift_G = share * signs_G.mean(axis=1) + (1 - share) * (labels_G * _of_first(len(one), len(other))).sum(axis=1)
    difference, tie = float(found_G[0]), _ROUNDING * float(np.abs(found_G).max())
    p = float((np.abs(found_G) >= abs(difference) - tie).mean())
    moved = shift_G < 1 - _ROUNDING
    ends = np.sort((difference - found_G[moved]) / (1 - shift_G[moved]))
    inside = math.floor((1 - confidence) / 2 * len(found_G) + 1e-9) - int((~moved).sum())
    low, high = (float(ends[inside]), float(ends[-inside - 1])) if inside >= 0 else (None, None)
    return Size(difference=difference, low=low, high=high, effect=None), p, 2 / len(found_G)


def _of_first(one: int, other: int) -> Floats:
    return np.repeat([1.0, 0.0], [one, other])


def _all(pairs: int, one: int, other: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return every pattern of signs with every choice of the first arm's runs, what was seen first."""
    signs: Floats = 1.0 - 2.0 * (np.arange(1 << pairs)[:, None] >> np.arange(pairs) & 1)
    chosen = np.array(list(combinations(range(one + other), one)))
    first = np.zeros((len(chosen), one + other), np.bool_)
    np.put_along_axis(first, chosen, values=True, axis=1)
    return np.repeat(signs, len(first), axis=0), np.tile(first, (len(signs), 1))


def _random(
    differences: Sequence[float], one: Sequence[float], other: Sequence[float]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    chance = np.random.default_rng(_SEED)
    signs: Floats = 1.0 - 2.0 * chance.integers(0, 2, size=(RESAMPLES + 1, len(differences)))
    first = np.tile(_of_first(len(one), len(other)) > 0, (RESAMPLES + 1, 1))
    first = chance.permuted(first, axis=1)
    signs[0], first[0] = 1.0, _of_first(len(one), len(other)) > 0
    return signs, first
