"""Tests that are exact for a handful of seeds, and the number of seeds that a claim needs.

Under the null hypothesis that two arms are equally good, the labels of the two trainings on one seed could as well be
exchanged, which flips the sign of their difference. The p-value is the share of the 2^n flips whose statistic is at
least as far from zero as the one that was seen (Fisher 1935, "The Design of Experiments", Sec. 21). No distribution is
assumed; what is assumed is that a difference and its negative are equally likely, which holds for any two arms whose
scores vary alike, however skewed, and for any two whose scores vary symmetrically, however differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

EXACT_PAIRS = 14
"""Maximum number of pairs for which all sign flips are counted, 2^14; above it, and for larger groups, `RESAMPLES`
random ones are drawn."""
RESAMPLES = 99_999
"""Number of random flips or exchanges if there are too many to count; the p-value then errs by about 0.001 at 0.05."""
_SEED = 0


def paired_p(differences: Sequence[float], *, ranks: bool = False) -> float:
    """Return the two-sided p-value of the sign-flip test.

    Args:
        differences: one per pair; a single one gives 1.
        ranks: flip the signs of the ranks of the differences' sizes instead of the differences: Wilcoxon's signed-rank
            test, which one seed that went wrong cannot dominate. A difference of zero counts for neither side.
    """
    from scipy import stats

    library: Any = stats  # its functions return values without types
    if len(differences) < 2:
        return 1.0
    sizes = library.rankdata([abs(value) for value in differences]) if ranks else [abs(value) for value in differences]
    signed = [
        math.copysign(float(size), value) if value else 0.0 for size, value in zip(sizes, differences, strict=True)
    ]
    return _permutation_p((signed,), "samples", 2 ** len(signed))


def unpaired_p(one: Sequence[float], other: Sequence[float], *, ranks: bool = False) -> float:
    """Return the two-sided p-value of the permutation test of two independent groups.

    Args:
        one: values of one arm; fewer than two give 1.
        other: values of the other.
        ranks: test the difference of the mean ranks (Mann and Whitney) instead of that of the means.
    """
    from scipy import stats

    library: Any = stats  # its functions return values without types
    if min(len(one), len(other)) < 2:
        return 1.0
    pooled = [float(value) for value in (library.rankdata([*one, *other]) if ranks else [*one, *other])]
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
    """Return the least number of seeds with which a claim is possible, however large the difference is.

    Args:
        level: of the claims, between 0 and 1.
        share: of the level that a single pair is tested at, because there are more of them; 1 / m for Holm's
            correction over m comparisons.
        paired: whether arms are paired by seed; else both have so many seeds of their own.
    """
    n = 2
    while (smallest_p(n) if paired else smallest_unpaired_p(n, n)) > level * share and n <= EXACT_PAIRS:
        n += 1
    return n


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, in the same order.

    Holm 1979, "A simple sequentially rejective multiple test procedure": the smallest times m, the next times m - 1,
    and so on, none below the one before. What stays at or below a level contains a false claim with at most that
    probability, whatever the dependence between the tests.
    """
    adjusted, running, m = [0.0] * len(p_values), 0.0, len(p_values)
    for rank, index in enumerate(sorted(range(m), key=p_values.__getitem__)):
        running = max(running, min(1.0, (m - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def _permutation_p(groups: tuple[Sequence[float], ...], kind: str, arrangements: int) -> float:
    from scipy import stats

    library: Any = stats  # its functions return values without types

    def statistic(one: Any, other: Any = None, axis: int = -1) -> Any:
        return one.mean(axis=axis) - (0.0 if other is None else other.mean(axis=axis))

    exact = arrangements <= 2**EXACT_PAIRS
    found = library.permutation_test(
        groups,
        statistic,
        permutation_type=kind,
        vectorized=True,
        n_resamples=arrangements if exact else RESAMPLES,
        rng=_SEED,
    )
    return float(found.pvalue)
