"""Measure how much earlier an arm reaches the validation loss that the baseline ends with.

TUPE's paper claims its quality so: "TUPE can achieve a higher score than the baseline while using only 30% of the
pre-training steps" (Ke et al. 2021, https://arxiv.org/abs/2006.15595, Sec. 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from wordorder.comparison.results_file import Results, Row, StepsToLoss
from wordorder.comparison.statistics.summary import baseline_of, by_run

Curve = Sequence[tuple[float, float]]


def steps_to_loss(results: Results) -> tuple[StepsToLoss, ...]:
    """Return for every arm but the baseline the steps that it takes to the baseline's best validation loss.

    Per seed (and fold) that both were trained with: the target is the lowest loss of the baseline's curve, its step the
    first at which it is there; the arm's is the first crossing of its own curve. A noisy curve crosses earlier than a
    smooth one would, by less than the distance between two evaluations. Steps and share are medians, None where half
    of the runs or more never get there.
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
            targets, before, steps, resolutions = zip(*known, strict=True)
            found.append(
                StepsToLoss(
                    arm=arm,
                    baseline=baseline,
                    target=median(targets),
                    baseline_steps=median(before),
                    steps=_finite(median(steps)),
                    low=_finite(min(steps)),
                    high=_finite(max(steps)),
                    share=_finite(median(own / usual for own, usual in zip(steps, before, strict=True))),
                    n=len(known),
                    reached=sum(map(math.isfinite, steps)),
                    resolution=max(resolutions),
                )
            )
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


def _reached(curve: Curve, baseline: Curve) -> tuple[float, float, float, float] | None:
    """Return the target, the baseline's step there, the arm's, infinite if it never gets there, and the resolution."""
    if not curve or not baseline:
        return None
    target = min(loss for _, loss in baseline)
    step = next(step for step, loss in baseline if loss == target)
    return (target, step, *first_step_at(curve, target)) if step > 0 else None


def _curve(row: Row) -> Curve:
    return sorted((step, loss) for step, loss in row.curve if loss is not None)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
