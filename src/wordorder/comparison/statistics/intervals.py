"""Size of the difference between two arms: its centre, an interval around it, and the effect size.

The interval of a paired difference holds the values that the exact test of `exact_tests` does not reject. With so few
pairs that no value can be rejected (five at 95%) Student's t stands in, which assumes normal differences and is wide.
No bootstrap: over so few seeds its intervals are too narrow (`evidence/false_positives.py` measures the coverage of
each).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

from wordorder.comparison.statistics.exact_tests import EXACT_PAIRS, RESAMPLES, scipy_stats

_SUBSETS = 19_999
_TIE = 1e-9
_SEED = 0
_ROUNDING = 1e-12
"""Relative to the mean: differences of scores that vary by no more are equal but for the rounding of floating point."""

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a difference between two arms."""

    difference: float
    low: float | None
    """Lower end of the interval; None, as `high`, where there is none at this confidence."""
    high: float | None
    effect: float | None
    """Effect size, without unit; None where it is not defined."""


def paired_mean(differences: Sequence[float], confidence: float) -> Size:
    """Return the mean of paired differences.

    The interval is the sign-flip test's own: the means of all non-empty subsets of the differences, or above 14 pairs
    of random ones, cut the line into parts of equal probability (Hartigan 1969, "Using subsample values as typical
    values"). Where they are too few for the confidence it is Student's t. The effect is the mean in standard deviations
    of the differences, corrected for few pairs (Hedges 1981): Hedges' g of the pairs; None below three, or where all
    differences are equal but for rounding.
    """
    mean, n = fmean(differences), len(differences)
    spread = stdev(differences) if n > 1 else 0.0
    low, high = _mean_interval(differences, confidence)
    effect = _hedges(n - 1) * mean / spread if n > 2 and spread > _ROUNDING * abs(mean) else None
    return Size(difference=mean, low=low, high=high, effect=effect)


def paired_median(differences: Sequence[float], confidence: float) -> Size:
    """Return the pseudomedian of paired differences: the median of the averages of all their pairs, each with itself.

    Hodges and Lehmann 1963: the centre that Wilcoxon's signed-rank test is about. The interval is that test's own; it
    has no ends below the number of pairs at which the test can reject. The effect is the rank correlation of matched
    pairs (Kerby 2014): the share of the ranks for the arm less the share against it, -1 to 1.
    """
    n = len(differences)
    walsh = sorted((differences[i] + differences[j]) / 2 for i in range(n) for j in range(i, n))
    inside = _signed_rank_cut(n, (1 - confidence) / 2)
    low, high = (walsh[inside - 1], walsh[-inside]) if inside else (None, None)
    ranks = [float(rank) for rank in scipy_stats().rankdata([abs(value) for value in differences])]
    ahead = sum(math.copysign(rank, value) for rank, value in zip(ranks, differences, strict=True) if value)
    total = sum(rank for rank, value in zip(ranks, differences, strict=True) if value)
    return Size(difference=median(walsh), low=low, high=high, effect=ahead / total if total else None)


def unpaired_mean(one: Sequence[float], other: Sequence[float], confidence: float) -> Size:
    """Return the difference of the means of two independent groups, with Welch's interval and Hedges' g."""
    difference, degrees = fmean(one) - fmean(other), len(one) + len(other) - 2
    if min(len(one), len(other)) < 2:
        return Size(difference=difference, low=None, high=None, effect=None)
    pooled = math.sqrt(((len(one) - 1) * stdev(one) ** 2 + (len(other) - 1) * stdev(other) ** 2) / degrees)
    if pooled <= _ROUNDING * abs(difference):
        return Size(difference=difference, low=difference, high=difference, effect=None)
    found = scipy_stats().ttest_ind(one, other, equal_var=False).confidence_interval(confidence)
    effect = _hedges(degrees) * difference / pooled
    return Size(difference=difference, low=float(found.low), high=float(found.high), effect=effect)


def unpaired_median(one: Sequence[float], other: Sequence[float]) -> Size:
    """Return the median of all differences between two independent groups (Hodges and Lehmann), without an interval.

    The effect is the rank correlation: how often the arm is ahead less how often it is behind, -1 to 1.
    """
    differences = [a - b for a in one for b in other]
    ahead = sum((value > 0) - (value < 0) for value in differences) / len(differences)
    return Size(difference=median(differences), low=None, high=None, effect=ahead)


def subset_means(differences: Sequence[float]) -> list[float]:
    """Return the sorted means of the non-empty subsets: all 2^n - 1, or random ones above 14 differences."""
    n = len(differences)
    if n > EXACT_PAIRS:
        chosen = (np.random.default_rng(_SEED).random((_SUBSETS, n)) < 0.5).astype(np.float64)
    else:
        chosen = (np.arange(1, 1 << n)[:, None] >> np.arange(n) & 1).astype(np.float64)
    sizes = chosen.sum(axis=1)
    means: list[float] = np.sort((chosen @ np.asarray(differences))[sizes > 0] / sizes[sizes > 0]).tolist()
    return means


def _mean_interval(differences: Sequence[float], confidence: float) -> tuple[float | None, float | None]:
    n = len(differences)
    if n < 2:
        return None, None
    parts = 2**n if n <= EXACT_PAIRS else _SUBSETS + 1
    inside = math.floor((1 - confidence) / 2 * parts + 1e-9)
    if max(differences) == min(differences):  # of few, Student's t would give no width, though no test rejects
        return (differences[0], differences[0]) if inside else (None, None)
    if inside:
        means = subset_means(differences)
        return means[inside - 1], means[-inside]
    ends: Any = scipy_stats().t.interval(
        confidence, n - 1, loc=fmean(differences), scale=stdev(differences) / math.sqrt(n)
    )
    return float(ends[0]), float(ends[1])


def _signed_rank_cut(n: int, tail: float) -> int:
    """Return the number of sorted averages outside the interval at each end, plus one; 0 where none can be.

    The distribution of the signed-rank sum is the product of (1 + x^r) / 2 over the ranks r = 1 .. n.
    """
    ways = [1]
    for rank in range(1, n + 1):
        shifted = [0] * rank + ways
        ways = [a + b for a, b in zip(ways + [0] * rank, shifted, strict=True)]
    below, cut = 0, 0
    for count in ways:
        below += count
        if below > tail * 2**n + 1e-9:
            break
        cut += 1
    return cut


def _hedges(degrees: int) -> float:
    """Return the factor that makes a standardised mean difference unbiased (Hedges 1981)."""
    return math.exp(math.lgamma(degrees / 2) - math.lgamma((degrees - 1) / 2)) / math.sqrt(degrees / 2)


def partly_paired(
    differences: Sequence[float], one: Sequence[float], other: Sequence[float], confidence: float
) -> tuple[Size, float, float]:
    """Return the size of the difference, its two-sided p-value, and the smallest p-value that so many runs can give.

    Some runs of two arms share a seed, others do not, and none is left out. The difference is the mean of that over the
    pairs and that of the other runs' means, each weighed by its precision (a pair's difference has twice the variance
    of a run). If two arms are equally good, the signs of pairs and the labels of the other runs could as well be
    others: the p-value is the share of all such arrangements, or of `RESAMPLES` random ones, that are as far from zero.

    Args:
        differences: of the runs with a common seed.
        one: scores of the first arm's other runs, at least one.
        other: of the second arm's other runs, at least one.
        confidence: of the interval, which has the differences that this test does not reject.
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
    difference, tie = float(found_G[0]), _TIE * float(np.abs(found_G).max())
    p = float((np.abs(found_G) >= abs(difference) - tie).mean())
    moved = shift_G < 1 - _TIE
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
