"""Welch's test of two arms and of their equivalence: claims from three seeds on, if seeds are roughly normal.

Two groups of a few numbers have no exact test that could reject: three seeds a side can be divided in 20 ways. Welch's
test (1947, "The generalization of Student's problem when several different population variances are involved") assumes
that the scores of an arm's seeds are roughly normal, not that arms vary alike. Arms are taken as independent:
where scores of one seed go together it is cautious.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

from wordorder.comparison.statistics.exact_tests import scipy_stats

FEWEST_SEEDS = 3
"""Seeds of each arm below which no spread is estimated."""
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A difference whose error is estimated, so that it divided by its error follows Student's t."""

    difference: float
    error: float
    """Standard error, above 0."""
    degrees: float
    """Degrees of freedom."""

    @property
    def p(self) -> float:
        """The two-sided p-value of no difference."""
        return 2 * self._tail(abs(self.difference))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the interval of the differences that the test does not reject."""
        half = float(_t().ppf((1 + confidence) / 2, self.degrees)) * self.error
        return self.difference - half, self.difference + half

    def p_same(self, margin: float) -> float:
        """Return the p-value of a difference as large as the margin or larger, by two one-sided tests.

        Schuirmann 1987, "A comparison of the two one-sided tests procedure and the power approach": both that the
        difference is at most -margin and that it is at least margin must be rejected.
        """
        return max(self._tail(margin - self.difference), self._tail(margin + self.difference))

    def _tail(self, distance: float) -> float:
        return float(_t().sf(distance / self.error, self.degrees))


def welch(one: Sequence[float], other: Sequence[float]) -> Estimate | None:
    """Return the difference of the means of two arms' seeds.

    None where an arm has fewer than `FEWEST_SEEDS`, or where no seed of either differs from the others but for
    rounding: then nothing says how much they might.
    """
    if min(len(one), len(other)) < FEWEST_SEEDS:
        return None
    difference = fmean(one) - fmean(other)
    parts = [(variance(own) / len(own), len(own) - 1) for own in (one, other)]
    error = math.sqrt(sum(part for part, _ in parts))
    if error <= _ROUNDING * max(map(abs, (*one, *other))):
        return None
    return Estimate(difference=difference, error=error, degrees=satterthwaite(parts))


def satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Return the degrees of freedom of a sum of variances, each with its own (Satterthwaite 1946)."""
    return sum(part for part, _ in parts) ** 2 / sum(part**2 / degrees for part, degrees in parts)


def _t() -> Any:
    return scipy_stats().t
