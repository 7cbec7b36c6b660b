"""Three kinds of claims about two arms: retrained, on new texts, and both together.

docs/statistics.md says what each assumes. Each kind is a family of its own, corrected by Holm's method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wordorder.comparison.results_file import Claim
from wordorder.comparison.statistics.exact_tests import holm
from wordorder.comparison.statistics.few_seeds import Estimate, welch
from wordorder.comparison.statistics.new_texts import (
    Floats,
    Pair,
    on_new_texts,
    retrained_on_new_texts,
)
from wordorder.comparison.statistics.outcomes import NOT_DISTINGUISHABLE, LostRuns, claimed_outcome
from wordorder.comparison.statistics.scale import Scale
from wordorder.errors import RunFailed
from wordorder.training.runs.unit_scores import UnitScores

RETRAINED, NEW_TEXTS, BOTH = "retrained", "new_texts", "retrained_new_texts"
"""Keys of the kinds of claims in an entry of `comparisons`."""
FEWEST_DOCUMENTS = 20
"""Documents below which texts are tested segment by segment, though neighbouring segments go together."""
DOCUMENT, EXAMPLE, SEGMENT = "document", "example", "segment"
_EPSILON = 1e-12

Kept = Mapping[str, Mapping[int, UnitScores]]
"""Arm -> seed -> the scores of its units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tested:
    """One pair that was tested, before the correction."""

    pair: Pair
    difference: float
    low: float | None
    high: float | None
    p: float
    about: dict[str, Any]
    """Other fields of its `Claim`."""


def retrained(
    scores: Mapping[str, Mapping[int | str, float]], pairs: Sequence[Pair], scale: Scale, lost: LostRuns
) -> dict[Pair, Claim]:
    """Test differences and equivalence over seeds, as if seeds were roughly normal: Welch's test, from three seeds on.

    Args:
        scores: arm -> seed -> score on the scale.
        pairs: the arms that are compared, (arm, against).
        lost: runs by arm that were lost.
    """
    found: dict[Pair, Estimate] = {}
    for pair in pairs:
        estimate = welch(*(list(scores[arm].values()) for arm in pair))
        if estimate is not None:
            found[pair] = estimate
    same = dict(zip(found, holm([one.p_same(scale.margin) for one in found.values()]), strict=True))
    tested = [
        _of_estimate(
            pair,
            estimate,
            scale,
            method="Welch's test",
            measure=_measure_of_seeds(scale),
            seeds=min(len(scores[arm]) for arm in pair),
            margin=scale.margin,
            p_same=same[pair],
            same=same[pair] <= scale.level + _EPSILON,
        )
        for pair, estimate in found.items()
    ]
    return _corrected(tested, scale, lost)


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
    unit = _unit(first)
    measure, by_right = _measure_of_units(scale, first, task_measure)
    goodness, sizes = _by_unit(kept, unit, by_right=by_right)
    about = {"measure": measure, "unit": unit, "units": len(sizes)}
    seeds = {pair: min(len(kept[arm]) for arm in pair) for pair in pairs}
    flipped = on_new_texts(goodness, sizes, pairs, scale.confidence) if len(sizes) > 1 else {}
    method = "sign flips of units"
    tested = [
        _Tested(
            pair=pair,
            difference=one.difference,
            low=one.low,
            high=one.high,
            p=one.p,
            about={**about, "method": method, "seeds": seeds[pair]},
        )
        for pair, one in flipped.items()
    ]
    both: list[_Tested] = []
    for pair in pairs:
        estimate = retrained_on_new_texts(goodness[pair[0]], goodness[pair[1]], sizes)
        if estimate is not None:
            method = "crossed random effects"
            both.append(_of_estimate(pair, estimate, scale, **about, method=method, seeds=seeds[pair]))
    return _corrected(tested, scale, lost), _corrected(both, scale, lost)


def _of_estimate(pair: Pair, estimate: Estimate, scale: Scale, **about: Any) -> _Tested:
    low, high = estimate.interval(scale.confidence)
    return _Tested(pair=pair, difference=estimate.difference, low=low, high=high, p=estimate.p, about=about)


def _corrected(tested: Sequence[_Tested], scale: Scale, lost: LostRuns) -> dict[Pair, Claim]:
    found: dict[Pair, Claim] = {}
    for one, corrected in zip(tested, holm([one.p for one in tested]), strict=True):
        outcome, why = NOT_DISTINGUISHABLE, None
        if corrected <= scale.level + _EPSILON:
            outcome, why = claimed_outcome(*one.pair, one.difference, lost)
        fields = {
            **one.about,
            "difference": one.difference,
            "low": one.low,
            "high": one.high,
            "p": one.p,
            "p_adjusted": corrected,
            "outcome": outcome,
            **({} if why is None else {"lost": why}),
        }
        found[one.pair] = Claim.model_validate(fields)
    return found


def _measure_of_seeds(scale: Scale) -> str:
    return f"{'log ' if scale.logarithmic else ''}{scale.quality.name}"


def _measure_of_units(scale: Scale, scores: UnitScores, task_measure: str) -> tuple[str, bool]:
    """Return the name of what is compared, and whether it is the number of right predictions."""
    if scale.logarithmic:
        return _measure_of_seeds(scale), False
    right = scores.right is not None and (scale.quality.key == "accuracy" or task_measure == "accuracy")
    return ("accuracy" if right else task_measure), right


def _unit(scores: UnitScores) -> str:
    predicted = scores.documents[scores.counts > 0]
    documents = len(np.unique(predicted))
    if documents == len(predicted):
        return EXAMPLE
    return DOCUMENT if documents >= FEWEST_DOCUMENTS else SEGMENT


def _by_unit(kept: Kept, unit: str, *, by_right: bool) -> tuple[dict[str, Floats], Floats]:
    """Return the sums of each arm by seed and unit, more being better, and the number of predictions of each unit."""
    found: dict[str, Floats] = {}
    sizes: Floats = np.zeros(0)
    for arm, own in kept.items():
        if not own:
            continue
        scores = [one.by_document() if unit == DOCUMENT else one for one in own.values()]
        predicted = scores[0].counts > 0
        sizes = scores[0].counts[predicted].astype(np.float64)
        of_seeds = [one.right if by_right and one.right is not None else -one.losses for one in scores]
        found[arm] = np.stack([values[predicted] for values in of_seeds]).astype(np.float64)
    return found, sizes
