"""Tests over the texts that arms were scored on: do differences hold on new texts of the same kind?

Both take the scores of each arm by seed and unit of the texts. `on_new_texts` takes the trained models as they are,
from one seed on. `retrained_on_new_texts` takes seeds and texts as two samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordorder.comparison.statistics.few_seeds import FEWEST_SEEDS, Estimate

FLIPS = 9_999
"""Random patterns of signs; the p-value errs by about 0.004 at 0.05."""
_CHUNK = 4_000_000  # signs that are held at a time, 32 MB
_SEED = 0
_ROUNDING = 1e-12

Floats = npt.NDArray[np.float64]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTest:
    """A difference, the interval that the test does not reject, and its p-value; positive: the first arm is better."""

    difference: float
    low: float | None
    high: float | None
    p: float


def on_new_texts(
    goodness: Mapping[str, Floats], sizes: Floats, pairs: list[Pair], confidence: float, *, flips: int = FLIPS
) -> dict[Pair, TextTest]:
    """Test the differences of trained models over units of text, by flipping the signs of whole units.

    The seeds of an arm are averaged on each unit. If two arms are equally good on texts of this kind, each unit's
    difference could as well have the other sign: the p-value is the share of random patterns that are as far
    from zero. The interval has the differences that this test does not reject, from the same patterns (Hartigan 1969,
    "Using subsample values as typical values"). It assumes that units are independent and a difference and its
    negative about equally likely; nothing else of their distribution or their sizes.

    Args:
        goodness: arm -> sums of a score, such as minus the losses, by seed and unit, (seeds, units); more is better.
        sizes: number of predictions of each unit, (units,).
        pairs: the arms that are compared.
        confidence: of the intervals.
        flips: number of random patterns.
    """
    arms = list(goodness)
    means_UA = np.stack([goodness[arm].mean(axis=0) for arm in arms], axis=1)
    units, total = len(sizes), sizes.sum()
    chance = np.random.default_rng(_SEED)
    sums: list[Floats] = []
    for rows in _chunks(flips, max(1, _CHUNK // units)):
        flipped = chance.integers(0, 2, size=(rows, units), dtype=np.int8).astype(np.float64)
        sums.append(flipped @ np.column_stack([means_UA, sizes]))
    drawn = np.concatenate(sums)
    size_F = drawn[:, -1]
    found: dict[Pair, TextTest] = {}
    for one, other in pairs:
        differences = means_UA[:, arms.index(one)] - means_UA[:, arms.index(other)]
        difference_F = drawn[:, arms.index(one)] - drawn[:, arms.index(other)]
        # flipping a subset reaches as far as what was seen where the subset's own sum is on the other side of zero
        tie = _ROUNDING * float(np.abs(means_UA).sum())
        below, above = 1 + int((difference_F <= tie).sum()), 1 + int((difference_F >= -tie).sum())
        ratios = np.sort(difference_F[size_F > 0] / size_F[size_F > 0])
        inside = math.floor((1 - confidence) / 2 * (flips + 1) + 1e-9)
        found[one, other] = TextTest(
            difference=float(differences.sum() / total),
            low=float(ratios[inside - 1]) if inside <= len(ratios) and inside else None,
            high=float(ratios[-inside]) if inside <= len(ratios) and inside else None,
            p=min(1.0, 2 * min(below, above) / (flips + 1)),
        )
    return found


def retrained_on_new_texts(one: Floats, other: Floats, sizes: Floats) -> Estimate | None:
    """Return the difference of two arms whose seeds and texts are both samples, with the error of both together.

    Crossed random effects: the variance of the difference is that of the seeds of each arm, as in Welch's test, plus
    that of the units' differences, less that of the interaction, which both hold; at least as large as the first and
    as the second alone. Degrees of freedom are Satterthwaite's. Units of unequal sizes are weighed by them, and
    their error is the jackknife's.

    The other known way, the bootstrap of seeds and units (Sellam et al. 2022, "The MultiBERTs",
    https://arxiv.org/abs/2106.16163), is too narrow with so few seeds: `benchmarks/false_positives.py` measures both.

    Args:
        one: sums of a score by seed and unit, (seeds, units); more is better.
        other: of the other arm.
        sizes: number of predictions of each unit, (units,).

    Returns:
        None where an arm has fewer than `FEWEST_SEEDS`, there is one unit, or nothing varies.
    """
    if min(len(one), len(other)) < FEWEST_SEEDS or len(sizes) < 2:
        return None
    total = float(sizes.sum())
    by_unit = one.mean(axis=0) - other.mean(axis=0)
    difference = float(by_unit.sum() / total)
    residual = (by_unit - difference * sizes) / (1 - sizes / total)
    of_units = float(residual @ residual) / total**2, _effective(sizes)
    of_seeds = [(float(own.sum(axis=1).var(ddof=1)) / total**2 / len(own), len(own) - 1) for own in (one, other)]
    of_both = [_interaction(own, sizes) for own in (one, other)]
    parts = [of_units, *of_seeds, *of_both]
    variance = max(sum(part for part, _ in parts), of_units[0], sum(part for part, _ in of_seeds))
    if math.sqrt(variance) <= _ROUNDING * max(float(np.abs(own).sum(axis=1).max()) for own in (one, other)) / total:
        return None
    degrees = variance**2 / sum(part**2 / freedom for part, freedom in parts if freedom > 0)
    return Estimate(difference=difference, error=math.sqrt(variance), degrees=degrees)


def _interaction(own: Floats, sizes: Floats) -> tuple[float, float]:
    """Return minus the variance of an arm's mean that is neither its seeds' nor its units', and its degrees."""
    seeds, total = len(own), float(sizes.sum())
    of_seed = own.sum(axis=1) / total
    residual = own - own.mean(axis=0) - np.outer(of_seed - of_seed.mean(), sizes)
    return -float((residual**2).sum()) / ((seeds - 1) * seeds * total**2), (seeds - 1) * _effective(sizes)


def _effective(sizes: Floats) -> float:
    """Return the degrees of freedom of units of these sizes, whose errors are in proportion to them."""
    return max(1.0, float((sizes @ sizes) ** 2 / (sizes**4).sum()) - 1)


def _chunks(count: int, most: int) -> list[int]:
    return [min(most, count - first) for first in range(0, count, most)]
