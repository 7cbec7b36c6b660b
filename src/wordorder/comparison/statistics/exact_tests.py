"""Tests that are exact for a handful of seeds, and the number of seeds that a claim needs.

If two arms are equally good, the labels of the two trainings on one seed could as well be exchanged, which flips the
sign of their difference. The p-value is the share of the 2^n flips whose statistic is at least as far from zero as the
one that was seen (Fisher 1935, "The Design of Experiments", Sec. 21). It is assumed that a difference and its negative
are equally likely, which holds where scores vary alike, however skewed, or symmetrically, however differently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

EXACT_PAIRS = 14
"""Maximum number of pairs for which all sign flips are counted, 2^14; above it, and for larger groups, `RESAMPLES`
random ones are drawn."""
RESAMPLES = 99_999
"""Number of random flips or exchanges if there are too many to count; the p-value then errs by about 0.001 at 0.05."""
_SEED = 0


def scipy_stats() -> Any:
    """Return scipy.stats, whose functions return values without types."""
    from scipy import stats

    return stats


def paired_p(differences: Sequence[float], *, ranks: bool = False) -> float:
    """Return the two-sided p-value of the sign-flip test; 1 for a single difference.

    With `ranks` it is Wilcoxon's signed-rank test, which one seed that went wrong cannot dominate: it flips the signs
    of the ranks of the differences' sizes. A difference of zero counts for neither side.
    """
    if len(differences) < 2:
        return 1.0
    signed = _signed(differences, ranks=ranks)
    return _permutation_p((signed,), "samples", 2 ** len(signed))


def signed_ranks(differences: Sequence[float]) -> float:
    """Return the sum of the ranks of the differences' sizes, each with the sign of its difference."""
    return sum(_signed(differences, ranks=True))


def _signed(differences: Sequence[float], *, ranks: bool) -> list[float]:
    sizes = [abs(value) for value in differences]
    if ranks:
        sizes = [float(rank) for rank in scipy_stats().rankdata(sizes)]
    return [math.copysign(size, value) if value else 0.0 for size, value in zip(sizes, differences, strict=True)]


def unpaired_p(one: Sequence[float], other: Sequence[float], *, ranks: bool = False) -> float:
    """Return the two-sided p-value of the permutation test of two independent groups; 1 if one has a single value.

    With `ranks` it tests the difference of the mean ranks (Mann and Whitney) instead of that of the means.
    """
    if min(len(one), len(other)) < 2:
        return 1.0
    pooled = [float(value) for value in (scipy_stats().rankdata([*one, *other]) if ranks else [*one, *other])]
    groups = pooled[: len(one)], pooled[len(one) :]
    return _permutation_p(groups, "independent", math.comb(len(pooled), len(one)))


def smallest_p(pairs: int) -> float:
    """Return the smallest p-value that `paired_p` can give: all differences on one side, or all on the other."""
    if pairs < 2:
        return 1.0
    return 2.0 ** (1 - pairs) if pairs <= EXACT_PAIRS else 2 / (RESAMPLES + 1)


def smallest_unpaired_p(one: int, other: int) -> float:
    """Return the smallest p-value that `unpaired_p` can give for groups of these sizes."""
    if min(one, other) < 2:
        return 1.0
    arrangements = math.comb(one + other, one)
    return 2 / arrangements if arrangements <= 2**EXACT_PAIRS else 2 / (RESAMPLES + 1)


def seeds_needed(level: float, *, share: float = 1.0, paired: bool = True) -> int:
    """Return the least number of seeds with which a claim is possible at a level, however large the difference is.

    Args:
        level: of the claims, between 0 and 1.
        share: of the level that a single pair is tested at, because there are more of them.
        paired: whether arms are paired by seed; else both have so many seeds of their own.
    """
    n = 2
    while (smallest_p(n) if paired else smallest_unpaired_p(n, n)) > level * share and n <= EXACT_PAIRS:
        n += 1
    return n


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, in the same order.

    Holm 1979, "A simple sequentially rejective multiple test procedure": the smallest times m, the next times m - 1,
    and so on, none below the one before; valid whatever the dependence between the tests.
    """
    adjusted, running, m = [0.0] * len(p_values), 0.0, len(p_values)
    for rank, index in enumerate(sorted(range(m), key=p_values.__getitem__)):
        running = max(running, min(1.0, (m - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def _permutation_p(groups: tuple[Sequence[float], ...], kind: str, arrangements: int) -> float:

    def statistic(one: Any, other: Any = None, axis: int = -1) -> Any:
        return one.mean(axis=axis) - (0.0 if other is None else other.mean(axis=axis))

    exact = arrangements <= 2**EXACT_PAIRS
    found = scipy_stats().permutation_test(
        groups,
        statistic,
        permutation_type=kind,
        vectorized=True,
        n_resamples=arrangements if exact else RESAMPLES,
        rng=_SEED,
    )
    return float(found.pvalue)


MOST_ARMS_OF_CLOSED_TESTING = 12
"""Maximum number of arms of which all divisions are tested, in about a second; above it Holm's correction is used."""
MOST_ARMS_AGAINST_A_BASELINE = 16
"""The same where all arms are compared with one alone: of k others there are 2^k sets, and no divisions."""
_DRAWS = 19_999
_EPSILON = 1e-9

Floats = npt.NDArray[np.float64]
Pair = tuple[str, str]


def share_of_level(arms: int, *, baseline: bool = False) -> float:
    """Return the share of the level at which a pair is tested in the division of all arms into pairs.

    No p-value above that share of the level can come first to a claim, so it decides how many seeds are needed.
    """
    return 1.0 if baseline else 1 / (arms // 2)


def closed_p(
    p_values: Mapping[Pair, float], scores: Mapping[str, Mapping[int | str, float]], *, baseline: str | None = None
) -> dict[Pair, float]:
    """Return the p-value of each pair corrected by the closure principle (Marcus, Peritz and Gabriel 1976).

    Whatever the truth, it is a division of all arms into sets of equal ones. The p-value of a pair is the largest of
    the divisions in which the two are equal; a false claim needs the true division to be rejected (Begun and Gabriel
    1981). A division is rejected where one of its sets is, each being tested at its share of the level: floor(s/2)
    parts for a set of s arms. A set of two is tested by the exact test of that pair, a larger one by Friedman's
    statistic of the ranks within each seed (Friedman 1937) against its own null distribution, which is sampled: equal
    arms may be exchanged on every seed. With one baseline only the set of it and those that are equal to it is tested,
    at the whole level.

    Holm's correction is as safe and simpler, but multiplies the smallest p-value, which an exact test of few seeds
    cannot make small, by the number of pairs: of eight arms there are 28, here there are four parts.

    Args:
        p_values: of the test of each pair of arms, in either order; all pairs, or all with the baseline.
        scores: arm -> seed (or fold) -> score. A set is ranked on the seeds that all its arms have; one seed or none
            gives the p-value 1.
        baseline: the arm with which every other is compared; None: all pairs are.
    """
    arms = list(scores)
    of_set = _set_p_values(p_values, scores, arms, None if baseline is None else arms.index(baseline))
    with_rest = of_set if baseline is not None else _worst_divisions(of_set, len(arms), min(p_values.values()))
    adjusted = dict(p_values)
    for chosen, p in with_rest.items():
        members = [arm for index, arm in enumerate(arms) if chosen >> index & 1]
        for one, other in combinations(members, 2):
            for pair in ((one, other), (other, one)):
                if pair in adjusted:
                    adjusted[pair] = max(adjusted[pair], p)
    return {pair: min(1.0, p) for pair, p in adjusted.items()}


def _set_p_values(
    p_values: Mapping[Pair, float],
    scores: Mapping[str, Mapping[int | str, float]],
    arms: Sequence[str],
    baseline: int | None,
) -> dict[int, float]:
    """Return the p-value of each set of two or more arms; a set is an integer with the bits of its arms."""
    found = {1 << arms.index(one) | 1 << arms.index(other): p for (one, other), p in p_values.items()}
    wins, present = _wins(scores)
    for size in range(3, len(arms) + 1):
        for chosen in combinations(range(len(arms)), size):
            if baseline is None or baseline in chosen:
                found[sum(1 << index for index in chosen)] = _friedman_p(wins, present, chosen)
    return found


def _worst_divisions(of_set: Mapping[int, float], arms: int, smallest: float) -> dict[int, float]:
    """Return for each set the largest p-value of the divisions that it is part of.

    That of a division with sets of p-values p and parts f is ``min(p / f) * sum(f)``, Bonferroni's with weights. For
    each number of parts the best of ``min(p / f)`` is found over all divisions of each set, from small sets to large.
    """
    most = arms // 2
    parts = {chosen: chosen.bit_count() // 2 for chosen in of_set}
    # A set with so small a p-value rejects every division that it is in: none of those is the worst.
    kept = {chosen: p / parts[chosen] for chosen, p in of_set.items() if p * most / parts[chosen] > smallest}
    best: list[list[float]] = [[math.inf] + [-math.inf] * most]
    for whole in range(1, 1 << arms):
        first = whole & -whole
        rest = whole ^ first
        found = list(best[rest])  # the first arm is equal to no other
        others = rest
        while others:
            ratio = kept.get(first | others)
            if ratio is not None:
                own = parts[first | others]
                for more, value in enumerate(best[rest ^ others][: most + 1 - own]):
                    found[own + more] = max(found[own + more], min(value, ratio))
            others = (others - 1) & rest
        best.append(found)
    everything = (1 << arms) - 1
    return {
        chosen: max(
            min(p / parts[chosen], value) * (parts[chosen] + more)
            for more, value in enumerate(best[everything ^ chosen])
            if value > 0
        )
        for chosen, p in of_set.items()
    }


def _wins(scores: Mapping[str, Mapping[int | str, float]]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    units = list(dict.fromkeys(unit for own in scores.values() for unit in own))
    table = np.array([[own.get(unit, np.nan) for own in scores.values()] for unit in units])
    first, second = table[:, :, None], table[:, None, :]
    return (first > second) + 0.5 * (first == second), ~np.isnan(table)


def _friedman_p(wins: Floats, present: npt.NDArray[np.bool_], chosen: Sequence[int]) -> float:
    members = list(chosen)
    complete: npt.NDArray[np.bool_] = np.logical_and.reduce(present[:, members], axis=1)
    seeds = int(complete.sum())
    if seeds < 2:
        return 1.0
    total = wins.sum(axis=0) if seeds == len(present) else wins[complete].sum(axis=0)
    # An arm's rank on a seed is the number of arms of the set that it beats, but for a constant.
    sums = total[np.ix_(members, members)].sum(axis=1)
    statistic = float(((sums - sums.mean()) ** 2).sum())
    null = _null(seeds, len(members))
    return float(1 + len(null) - np.searchsorted(null, statistic - _EPSILON)) / (1 + len(null))


@cache  # a comparison of eight arms asks for it 219 times, with six different sizes
def _null(seeds: int, arms: int) -> Floats:
    """Return sorted draws of Friedman's statistic, the sum of squares of centred rank sums, under equal arms."""
    ranks = np.broadcast_to(np.arange(arms, dtype=np.float64), (_DRAWS, seeds, arms))
    sums = np.random.default_rng(_SEED).permuted(ranks, axis=2).sum(axis=1)
    return np.sort(((sums - sums.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
