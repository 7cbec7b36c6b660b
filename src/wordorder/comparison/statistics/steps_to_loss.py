"""Measure how much earlier an arm reaches the validation loss that the baseline ends with.

TUPE's paper claims its quality so: "TUPE can achieve a higher score than the baseline while using only 30% of the
pre-training steps" (Ke et al. 2021, https://arxiv.org/abs/2006.15595, Sec. 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from wordorder.comparison.results_file import Results, Row, StepsToLoss
from wordorder.comparison.statistics.summary import baseline_of, by_run

MEANING = (
    "The step at which an arm first has the best validation loss of the baseline's run on the same seed, interpolated "
    "linearly between two evaluations, {resolution} steps apart; median over the {n} runs (earliest to latest), and as "
    "a share of the step at which the baseline had it. Both follow the learning-rate schedule of the whole training: "
    "under a schedule that falls to zero most of the loss is won at the end, so an arm trained for that many steps "
    "alone would be there earlier still, and a share near 1 says little."
)
"""Explanation of the numbers, for a caption."""

Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    """One seed: the target, the baseline's step there, and the arm's, infinite if it never gets there."""

    target: float
    baseline: float
    steps: float
    resolution: float


def steps_to_loss(results: Results) -> tuple[StepsToLoss, ...]:
    """Return for every arm but the baseline the steps that it takes to the baseline's best validation loss.

    Per seed (and fold) that both were trained with: the target is the lowest loss of the baseline's curve, its step the
    first at which it is there; the arm's is the first crossing of its own curve. A noisy curve crosses earlier than a
    smooth one would, by less than the distance between two evaluations.
    """
    baseline, runs = baseline_of(results), by_run(results)
    if baseline is None or baseline not in runs:
        return ()
    found: list[StepsToLoss] = []
    for arm, rows in runs.items():
        shared = [unit for unit in rows if unit in runs[baseline]] if arm != baseline else []
        measured = [_reached(_curve(rows[unit]), _curve(runs[baseline][unit])) for unit in shared]
        known = [one for one in measured if one is not None]
        if known:
            found.append(_summary(arm, baseline, known))
    return tuple(found)


def first_step_at(curve: Curve, target: float) -> tuple[float, float]:
    """Return the step at which a curve first is at most ``target``, and the distance between the points around it.

    Between two points the loss is taken as linear. A curve that is there at its first point gives that step (it may
    have been there earlier), with the distance from step 0; one that never is gives infinity.
    """
    for number, (step, loss) in enumerate(curve):
        if loss <= target:
            if number == 0:
                return step, step
            before, higher = curve[number - 1]
            return before + (step - before) * (higher - target) / (higher - loss), step - before
    return math.inf, 0.0


def _reached(curve: Curve, baseline: Curve) -> _Reached | None:
    if not curve or not baseline:
        return None
    target = min(loss for _, loss in baseline)
    step = next(step for step, loss in baseline if loss == target)
    steps, resolution = first_step_at(curve, target)
    return _Reached(target=target, baseline=step, steps=steps, resolution=resolution) if step > 0 else None


def _curve(row: Row) -> Curve:
    return sorted((step, loss) for step, loss in row.curve if loss is not None)


def _summary(arm: str, baseline: str, runs: Sequence[_Reached]) -> StepsToLoss:
    steps = [run.steps for run in runs]
    return StepsToLoss(
        arm=arm,
        baseline=baseline,
        target=median(run.target for run in runs),
        baseline_steps=median(run.baseline for run in runs),
        steps=_finite(median(steps)),
        low=_finite(min(steps)),
        high=_finite(max(steps)),
        share=_finite(median(run.steps / run.baseline for run in runs)),
        n=len(runs),
        reached=sum(math.isfinite(step) for step in steps),
        resolution=max(run.resolution for run in runs),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
