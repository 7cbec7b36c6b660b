"""Two kinds of claims about two arms beside that of `seeds`: on new texts, and retrained and on new texts.

docs/statistics.md says what each assumes. Each kind is a family of its own, corrected by Holm's method.

- `on_new_texts`: the trained models as they are, from one seed on.
- `retrained_on_new_texts`: seeds and texts as two samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from wordorder.comparison.results_file import Claim
from wordorder.comparison.statistics.seeds import (
    FEWEST_SEEDS,
    NOT_DISTINGUISHABLE,
    Floats,
    LostRuns,
    Pair,
    claimed_outcome,
    holm,
    special,
)
from wordorder.comparison.statistics.summary import Scale
from wordorder.errors import RunFailed
from wordorder.training.runs.unit_scores import UnitScores

NEW_TEXTS, BOTH = "new_texts", "retrained_new_texts"
"""Keys of the kinds of claims in an entry of `comparisons`."""
FEWEST_DOCUMENTS = 20
"""Documents below which texts are tested segment by segment, though neighbouring segments go together."""
DOCUMENT, EXAMPLE, SEGMENT = "document", "example", "segment"
FLIPS = 9_999
"""Random patterns of signs; the p-value errs by about 0.004 at 0.05."""
_CHUNK = 4_000_000  # signs that are held at a time, 32 MB
_SEED = 0
_ROUNDING = 1e-12
_EPSILON = 1e-12

Kept = Mapping[str, Mapping[int, UnitScores]]
"""Arm -> seed -> the scores of its units."""


@dataclass(frozen=True, slots=True)
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

    The seeds of an arm are averaged on each unit. The p-value is the share of random patterns of signs that are as far
    from zero; the interval has the differences that this test does not reject, from the same patterns (Hartigan 1969,
    "Using subsample values as typical values"). Assumed is only that units are independent, and a difference and its
    negative about equally likely.

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
    most = max(1, _CHUNK // units)
    for first in range(0, flips, most):
        flipped = chance.integers(0, 2, size=(min(most, flips - first), units), dtype=np.int8).astype(np.float64)
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
        ends = (float(ratios[inside - 1]), float(ratios[-inside])) if 0 < inside <= len(ratios) else (None, None)
        p = min(1.0, 2 * min(below, above) / (flips + 1))
        found[one, other] = TextTest(float(differences.sum() / total), *ends, p)
    return found


def retrained_on_new_texts(one: Floats, other: Floats, sizes: Floats) -> Estimate | None:
    """Return the difference of two arms whose seeds and texts are both samples, with the error of both together.

    Crossed random effects: the variance of the difference is that of the seeds of each arm, as in Welch's test, plus
    that of the units' differences, less that of the interaction, which both hold; at least as large as the first and
    as the second alone. Degrees of freedom are Satterthwaite's; units are weighed by their sizes, and their error is
    the jackknife's. The bootstrap (Sellam et al. 2022, https://arxiv.org/abs/2106.16163) is too narrow with so few
    seeds: `evidence/false_positives.py` measures both.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A difference whose error is estimated, so that it divided by its error follows Student's t."""

    difference: float
    error: float
    """Standard error, above 0."""
    degrees: float

    @property
    def p(self) -> float:
        """The two-sided p-value of no difference."""
        return 2 * float(special().stdtr(self.degrees, -abs(self.difference) / self.error))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the interval of the differences that the test does not reject."""
        half = float(special().stdtrit(self.degrees, (1 + confidence) / 2)) * self.error
        return self.difference - half, self.difference + half


def on_texts(
    kept: Kept, pairs: Sequence[Pair], scale: Scale, lost: LostRuns, *, task_measure: str
) -> tuple[dict[Pair, Claim], dict[Pair, Claim]]:
    """Test differences on new texts: of the models as they were trained, and of arms that are trained again.

    Args:
        kept: arm -> seed -> scores of units; arms without any are left out.
        task_measure: name of the loss of the task, where the headline metric is no mean over units.

    Raises:
        RunFailed: two runs were scored on different texts.
    """
    every = [(arm, seed, scores) for arm, own in kept.items() for seed, scores in own.items()]
    pairs = [pair for pair in pairs if all(kept.get(arm) for arm in pair)]
    if not pairs:
        return {}, {}
    first_arm, first_seed, first = every[0]
    for arm, seed, scores in every:
        same = np.array_equal(scores.counts, first.counts) and np.array_equal(scores.documents, first.documents)
        if not same or scores.data != first.data:
            raise RunFailed(
                f"unit_scores.safetensors of {arm}, seed {seed}, is of other texts than that of {first_arm}, seed "
                f"{first_seed}; remove the run's folder and run the comparison again"
            )
    predicted = first.documents[first.counts > 0]
    documents = len(np.unique(predicted))
    unit = EXAMPLE if documents == len(predicted) else DOCUMENT if documents >= FEWEST_DOCUMENTS else SEGMENT
    by_accuracy = "accuracy" in (scale.quality.key, task_measure) and not scale.logarithmic
    by_right = by_accuracy and first.right is not None
    measure = scale.measure if scale.logarithmic else "accuracy" if by_right else task_measure
    goodness, sizes = _by_unit(kept, unit, by_right=by_right)
    flipped = on_new_texts(goodness, sizes, pairs, scale.confidence) if len(sizes) > 1 else {}
    both = {pair: retrained_on_new_texts(goodness[pair[0]], goodness[pair[1]], sizes) for pair in pairs}
    crossed = {
        pair: TextTest(one.difference, *one.interval(scale.confidence), one.p)
        for pair, one in both.items()
        if one is not None
    }

    def claims(tested: Mapping[Pair, TextTest], method: str) -> dict[Pair, Claim]:
        head = {"measure": measure, "unit": unit, "units": len(sizes), "method": method}
        about = {pair: {**head, "seeds": min(len(kept[arm]) for arm in pair)} for pair in tested}
        return _corrected(tested, about, scale, lost)

    return claims(flipped, "sign flips of units"), claims(crossed, "crossed random effects")


def _corrected(
    tested: Mapping[Pair, TextTest], about: Mapping[Pair, Mapping[str, object]], scale: Scale, lost: LostRuns
) -> dict[Pair, Claim]:
    found: dict[Pair, Claim] = {}
    p_values = holm([one.p for one in tested.values()])
    for (pair, one), corrected in zip(tested.items(), p_values, strict=True):
        outcome, why = NOT_DISTINGUISHABLE, None
        if corrected <= scale.level + _EPSILON:
            outcome, why = claimed_outcome(*pair, one.difference, lost)
        fields = {**about[pair], **asdict(one), "p_adjusted": corrected, "outcome": outcome}
        found[pair] = Claim.model_validate(fields if why is None else {**fields, "lost": why})
    return found


def _by_unit(kept: Kept, unit: str, *, by_right: bool) -> tuple[dict[str, Floats], Floats]:
    sums: dict[str, Floats] = {}
    sizes: Floats = np.zeros(0)
    for arm, own in kept.items():
        if own:
            scores = [one.by_document() if unit == DOCUMENT else one for one in own.values()]
            predicted = scores[0].counts > 0
            sizes = scores[0].counts[predicted].astype(np.float64)
            of_seeds = [one.right if by_right and one.right is not None else -one.losses for one in scores]
            sums[arm] = np.stack([values[predicted] for values in of_seeds]).astype(np.float64)
    return sums, sizes
