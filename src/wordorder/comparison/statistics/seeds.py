"""Compare the means of arms over their seeds, or folds: Welch's test with a common floor, and the permutation test.

The null hypothesis of a pair is that the runs of its two arms have one distribution, whatever its shape and whatever
the other arms do, or that they are normal with equal means and unequal spreads. With few seeds Welch's test alone
claims falsely where runs either learn or do not: all three runs of one arm learn, none of another does, and neither
shows any scatter. So the standard error is at least that of the scatter of the other arms, the floor. From the number
of seeds on at which the permutation test can decide a pair, its p-value is demanded instead, and the floor is dropped.
docs/statistics.md has the errors that were simulated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

BETTER, WORSE, SAME, NOT_DISTINGUISHABLE, IDENTICAL, NOT_TESTED, NO_CLAIM = (
    "better",
    "worse",
    "same",
    "not distinguishable",
    "identical",
    "not tested",
    "no claim",
)
REVERSED = {BETTER: WORSE, WORSE: BETTER}
"""Outcome -> the same seen from the other arm, where that differs."""

LostRuns = Mapping[str, tuple[int, int]]
"""Arm -> number of runs that were lost, and of those that ended; only arms that lost any."""


def claimed_outcome(arm: str, against: str, difference: float, lost: LostRuns) -> tuple[str, str | None]:
    """Return the outcome of a difference that is claimed, and why it is none: the arm ahead lost more runs."""
    ahead, behind = (arm, against) if difference > 0 else (against, arm)
    (gone, of), (gone_behind, of_behind) = (lost.get(name, (0, 1)) for name in (ahead, behind))
    if gone / of > gone_behind / of_behind:
        return NO_CLAIM, f"{ahead} lost {gone} of {of} runs"
    return (BETTER if difference > 0 else WORSE), None


FEWEST_SEEDS = 3
"""Seeds of each arm below which no spread is estimated."""
FEWEST_SEEDS_OF_SMALL_LEVELS = 5
"""The same below `SMALL_LEVEL`, at which three or four seeds claim falsely in up to 3% of cases whatever the level."""
SMALL_LEVEL = 0.03
FLOOR, PERMUTATION, SIGN_FLIPS = "Welch's test with a common floor", "the permutation test", "the sign-flip test"
MOST_SPLITS = 200_000
"""Number of splits, or of sign flips, up to which all are counted; above it so many random ones are."""
_SHARE_OF_LEVEL = 4  # the smallest permutation p, corrected for all pairs, is at most the level over this
_EXCESS = 0.6  # Welch's own level at n seeds is up to 1 + 0.6 / n times the nominal one
_ROUNDING = 1e-12
_TIE = 1e-9
_SEED = 0

Floats = npt.NDArray[np.float64]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedTest:
    """The test of a pair of arms; a positive difference says that the first is better."""

    difference: float
    low: float
    """Lower end of the simultaneous interval, which excludes zero exactly where the difference is significant."""
    high: float
    p: float
    p_adjusted: float
    """The p-value corrected for the family of pairs."""
    p_same: float | None
    """Corrected p-value of the margin or more, by two one-sided tests (Schuirmann 1987); None where nothing varies."""
    method: str
    noisiest: str | None = None
    """The arm of the floor whose runs vary most, where the pair alone would be significant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimate:
    """A difference before the correction for the family."""

    difference: float
    error: float
    degrees: float
    excess: float
    """Factor of p-values of Student's t."""
    permutation_p: float | None = None
    welch_p: float = 1.0
    noisiest: str | None = None

    def tail(self, distance: float) -> float:
        return min(1.0, self.excess * float(special().stdtr(self.degrees, -distance / self.error)))

    @property
    def t_p(self) -> float:
        """The two-sided p-value of Student's t; 1 where nothing varies, since nothing says how much it might."""
        return min(1.0, 2 * self.tail(abs(self.difference))) if self.error else 1.0

    @property
    def p(self) -> float:
        return max(self.t_p, self.permutation_p or 0.0)

    def half_width(self, level: float) -> float:
        if not self.error:
            return abs(self.difference)
        return -float(special().stdtrit(self.degrees, min(0.5, level / (2 * self.excess)))) * self.error


def special() -> Any:
    """Return scipy.special, whose functions return values without types."""
    from scipy import special

    return special


def compare_seeds(
    scores: Mapping[str, Sequence[float]], pairs: Sequence[Pair], *, level: float, margin: float
) -> dict[Pair, SeedTest]:
    """Test the differences of the means of arms whose runs are independent groups.

    Args:
        scores: arm -> finite scores of its runs, more is better; all arms of the comparison.
        pairs: the family, (arm, against): all pairs of arms, or all with one baseline.
        level: at which a difference is significant, corrected for all pairs.
        margin: the difference up to which two arms are called the same.

    Returns:
        The pairs of which both arms have at least `seeds_to_test` runs.
    """
    runs = {arm: np.asarray(values, np.float64) for arm, values in scores.items()}
    least = seeds_to_test(level)
    tested = [pair for pair in pairs if min(len(runs[arm]) for arm in pair) >= least]
    estimates = {pair: _of_seeds(*pair, runs, pairs=len(pairs), level=level) for pair in tested}
    return _stepped_down(estimates, _steps(pairs), level=level, margin=margin, exact=PERMUTATION)


def compare_folds(
    scores: Mapping[str, Mapping[int | str, float]], pairs: Sequence[Pair], *, level: float, margin: float
) -> dict[Pair, SeedTest]:
    """Test the differences of the means of arms over folds, whose texts they share, by their differences by fold.

    The floor is the interaction of arms and folds, the permutations are sign flips; else as `compare_seeds`, with
    `scores` by arm and fold.
    """
    least, estimates = seeds_to_test(level), dict[Pair, _Estimate]()
    for one, other in pairs:
        folds = [fold for fold in scores[one] if fold in scores[other]]
        if len(folds) >= least:
            # an arm that lost one of these folds has no part in the floor
            runs = {arm: np.array([own[f] for f in folds]) for arm, own in scores.items() if own.keys() >= set(folds)}
            estimates[one, other] = _of_folds(one, other, runs, pairs=len(pairs), level=level)
    return _stepped_down(estimates, _steps(pairs), level=level, margin=margin, exact=SIGN_FLIPS)


def seeds_to_test(level: float) -> int:
    """Return the least number of seeds of each arm with which a pair is tested at a level."""
    return FEWEST_SEEDS if level >= SMALL_LEVEL else FEWEST_SEEDS_OF_SMALL_LEVELS


def seeds_without_floor(pairs: int, level: float, *, folds: bool = False) -> int:
    """Return the first number of seeds with which each pair is judged by the runs of its own two arms."""
    n = FEWEST_SEEDS
    while not _is_exact(2**n if folds else math.comb(2 * n, n), pairs, level):
        n += 1
    return n


def _is_exact(arrangements: int, pairs: int, level: float) -> bool:
    return 2 * pairs / arrangements <= level / _SHARE_OF_LEVEL


def _of_seeds(one: str, other: str, runs: Mapping[str, Floats], *, pairs: int, level: float) -> _Estimate:
    n, variance = _counts_and_variances(runs)
    least = min(n[one], n[other])
    parts = {arm: variance[arm] / n[arm] for arm in (one, other)}
    squared = sum(parts.values())
    # Satterthwaite 1946, for the two arms of the pair and for all arms of the floor
    degrees = squared**2 / sum(part**2 / (n[arm] - 1) for arm, part in parts.items()) if squared else 1.0
    welch, noisiest, p = (squared, degrees), None, None
    if _is_exact(math.comb(n[one] + n[other], n[one]), pairs, level):
        p = permutation_p(runs[one], runs[other])
    else:
        outside = sorted((arm for arm in variance if arm not in parts), key=variance.__getitem__)
        pool = [one, other, *(outside if least == FEWEST_SEEDS else outside[:-1])]
        total = sum((n[arm] - 1) * variance[arm] for arm in pool)
        floor = total / sum(n[arm] - 1 for arm in pool) * (1 / n[one] + 1 / n[other])
        if floor > squared * (1 + _TIE):
            squared, degrees = floor, total**2 / sum((n[arm] - 1) * variance[arm] ** 2 for arm in pool)
            noisiest = max(pool, key=variance.__getitem__)
    difference = float(runs[one].mean() - runs[other].mean())
    largest = float(np.abs(np.concatenate([runs[one], runs[other]])).max())
    return _estimate(difference, (squared, degrees), welch, largest, noisiest, p, excess=1 + _EXCESS / least)


def _of_folds(one: str, other: str, runs: Mapping[str, Floats], *, pairs: int, level: float) -> _Estimate:
    differences, noisiest, p = runs[one] - runs[other], None, None
    n = len(differences)
    squared, degrees = float(differences.var(ddof=1)) / n, n - 1.0
    welch = squared, degrees
    if _is_exact(2**n, pairs, level):
        p = sign_flip_p(differences)
    else:
        spread = dict(zip(runs, np.diag(_interaction(runs)).tolist(), strict=True))
        outside = sorted((arm for arm in runs if arm not in (one, other)), key=spread.__getitem__)
        pool = [one, other, *(outside if n == FEWEST_SEEDS else outside[:-1])]
        covariance = _interaction({arm: runs[arm] for arm in pool})
        floor = 2 / n * float(np.trace(covariance)) / (len(pool) - 1)
        if floor > squared * (1 + _TIE):
            # Box 1954: the degrees of freedom of a sum of squares whose terms vary unequally and go together
            degrees = (n - 1) * float(np.trace(covariance) ** 2 / (covariance**2).sum())
            squared, noisiest = floor, max(pool, key=spread.__getitem__)
    largest = float(np.abs(np.concatenate([runs[one], runs[other]])).max())
    return _estimate(float(differences.mean()), (squared, degrees), welch, largest, noisiest, p, excess=1.0)


def _interaction(runs: Mapping[str, Floats]) -> Floats:
    """Return the covariance (arms, arms) of what neither the arm nor the fold explains."""
    scores_AF = np.stack(list(runs.values()))
    rest_AF = scores_AF - scores_AF.mean(axis=1, keepdims=True) - scores_AF.mean(axis=0) + scores_AF.mean()
    return rest_AF @ rest_AF.T / (scores_AF.shape[1] - 1)


def _counts_and_variances(runs: Mapping[str, Floats]) -> tuple[dict[str, int], dict[str, float]]:
    several = {arm: values for arm, values in runs.items() if len(values) > 1}
    return {a: len(v) for a, v in several.items()}, {a: float(v.var(ddof=1)) for a, v in several.items()}


def _estimate(
    difference: float,
    squared_and_degrees: tuple[float, float],
    welch: tuple[float, float],
    largest: float,
    noisiest: str | None,
    permutation: float | None,
    *,
    excess: float,
) -> _Estimate:
    def estimate(squared: float, degrees: float) -> _Estimate:
        error = math.sqrt(squared)
        error = error if error > _ROUNDING * largest else 0.0  # equal scores, but for rounding
        return _Estimate(difference=difference, error=error, degrees=degrees, excess=excess)

    alone = estimate(*welch)
    return replace(estimate(*squared_and_degrees), permutation_p=permutation, welch_p=alone.t_p, noisiest=noisiest)


def _stepped_down(
    estimates: Mapping[Pair, _Estimate], steps: Sequence[int], *, level: float, margin: float, exact: str
) -> dict[Pair, SeedTest]:
    """Correct the p-values of a family, and give each pair the interval of the level that it is tested at."""
    varying = [pair for pair, one in estimates.items() if one.error]
    same = holm([estimates[pair].tail(margin - abs(estimates[pair].difference)) for pair in varying])
    p_same = dict(zip(varying, same, strict=True))
    tests, running, denied = dict[Pair, SeedTest](), 0.0, 0
    for pair, times in zip(sorted(estimates, key=lambda pair: estimates[pair].p), steps, strict=False):
        one = estimates[pair]
        running = max(running, min(1.0, times * one.p))
        significant = running <= level + _ROUNDING
        if not significant:  # all later pairs are tested as the first that is denied
            times = denied = denied or times
        half = one.half_width(level / times)
        if significant == (half >= abs(one.difference)):  # denied by the permutation test alone, or a tie
            half = abs(one.difference)
        floored = not significant and times * one.welch_p <= level
        tests[pair] = SeedTest(
            difference=one.difference,
            low=one.difference - half,
            high=one.difference + half,
            p=one.p,
            p_adjusted=running,
            p_same=p_same.get(pair),
            method=FLOOR if one.permutation_p is None else exact,
            noisiest=one.noisiest if floored else None,
        )
    return {pair: tests[pair] for pair in estimates}


def _steps(pairs: Sequence[Pair]) -> Sequence[int]:
    """Return the number of pairs that can be equal at each step: Shaffer's of all pairs of arms, else Holm's."""
    arms = {arm for pair in pairs for arm in pair}
    every = len(pairs) == math.comb(len(arms), 2)
    return most_equal_pairs(len(arms)) if every else range(len(pairs), 0, -1)


def most_equal_pairs(arms: int) -> list[int]:
    """Return for each step the largest number of equal pairs that is possible after so many differences.

    Shaffer 1986: sets of equal arms have s (s - 1) / 2 equal pairs each, so of four arms 6, and after the first
    difference 3.
    """
    possible: list[set[int]] = [{0}]
    for count in range(1, arms + 1):
        possible.append({s * (s - 1) // 2 + rest for s in range(1, count + 1) for rest in possible[count - s]})
    total = arms * (arms - 1) // 2
    return [max(equal for equal in possible[arms] if equal <= total - step) for step in range(total)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, in the same order; valid whatever the dependence between the tests.

    Holm 1979: the smallest times m, the next times m - 1, and so on, none below the one before.
    """
    adjusted, running, m = [0.0] * len(p_values), 0.0, len(p_values)
    for rank, index in enumerate(sorted(range(m), key=p_values.__getitem__)):
        running = max(running, min(1.0, (m - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def permutation_p(one: Floats, other: Floats) -> float:
    """Return the share of the splits of all runs into two groups whose means are at least as far apart (Fisher 1935).

    Above `MOST_SPLITS` splits so many random ones are drawn.
    """
    pooled = np.concatenate([one, other])
    pooled = pooled - pooled.mean()  # so the sum of the first group is the difference of the means, but for a factor
    return _share(_splits(len(one), len(other)) @ pooled, float(pooled[: len(one)].sum()), pooled)


def sign_flip_p(differences: Sequence[float] | Floats) -> float:
    """Return the share of the patterns of signs whose sum is at least as far from zero as that of the differences."""
    values = np.asarray(differences, np.float64)
    return _share(_signs(len(values)) @ values, float(values.sum()), values)


def _share(sums: Floats, observed: float, values: Floats) -> float:
    far = int((np.abs(sums) >= abs(observed) - _TIE * float(np.abs(values).sum())).sum())
    return (1 + far) / (1 + len(sums)) if len(sums) == MOST_SPLITS else far / len(sums)


@lru_cache(maxsize=2)  # the pairs of a comparison have the same numbers of runs; up to 40 MB each
def _splits(one: int, other: int) -> Floats:
    if math.comb(one + other, one) <= MOST_SPLITS:
        chosen = np.array(list(combinations(range(one + other), one)))
        members = np.zeros((len(chosen), one + other))
        np.put_along_axis(members, chosen, 1.0, axis=1)
        return members
    first = np.tile(np.repeat([1.0, 0.0], [one, other]), (MOST_SPLITS, 1))
    return np.random.default_rng(_SEED).permuted(first, axis=1)


@cache
def _signs(count: int) -> Floats:
    if 2**count <= MOST_SPLITS:
        return np.asarray(1 - 2 * (np.arange(1 << count)[:, None] >> np.arange(count) & 1), np.float64)
    return np.random.default_rng(_SEED).choice([-1.0, 1.0], size=(MOST_SPLITS, count))
