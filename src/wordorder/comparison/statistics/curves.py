"""Read validation curves: how early an arm reaches the baseline's lowest loss, and whether its own still falls.

TUPE's paper claims its quality so: "TUPE can achieve a higher score than the baseline while using only 30% of the
pre-training steps" (Ke et al. 2021, https://arxiv.org/abs/2006.15595, Sec. 4.2). A
comparison that is read while the curves fall says who is fast, not who is best; and a rate at the edge of those that
were tried says that the arm was not tuned to its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from wordorder.comparison.results_file import Point, Results, Row, StepsToLoss
from wordorder.comparison.statistics.summary import baseline_of, by_run

Curve = Sequence[tuple[float, float]]


def steps_to_loss(results: Results) -> tuple[StepsToLoss, ...]:
    """Return for every arm but the baseline the steps that it takes to the baseline's best validation loss.

    Per seed (and fold) that both were trained with: the target is the lowest loss of the baseline's curve, its step the
    first at which it is there; the arm's is the first crossing of its own curve. Steps and share are medians, None
    where half of the runs or more never get there.
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


LAST_SHARE = 0.1
"""Share of the steps, the last ones, over which the fall of a curve is measured."""
LEAST_RELATIVE_FALL = 0.01
"""Fall over these steps, as a share of the loss, from which on a curve still falls."""
LEAST_FALL = 0.001
"""Fall in units of the loss below which no curve falls: a loss near zero, as of a solved task, halves for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveEnd:
    """The end of a validation curve, on the line of least squares through its last points."""

    loss: float
    """Loss at the last step."""
    fall: float
    """Fall of the loss over the last tenth of the steps; negative where it rises."""

    @property
    def still_falling(self) -> bool:
        """True from `LEAST_RELATIVE_FALL` of the loss on, unless the fall is below `LEAST_FALL`."""
        return self.fall >= max(LEAST_FALL, LEAST_RELATIVE_FALL * self.loss)


def end_of_curve(curve: Sequence[Point]) -> CurveEnd | None:
    """Return the end of a curve of (step, validation loss); None where it has fewer than two points with a loss.

    Let S be the last step. A line is fitted by least squares to the points from 0.9 S on, or to the last two points;
    with slope b the fall is ``-0.1 b S``, and the loss is that of the line at S.
    """
    points = sorted((float(step), float(loss)) for step, loss in curve if loss is not None)
    if len(points) < 2 or points[-1][0] == points[-2][0]:
        return None
    last = points[-1][0]
    start = min((1 - LAST_SHARE) * last, points[-2][0])
    steps, losses = np.array([point for point in points if point[0] >= start]).T
    away = steps - steps.mean()
    slope = float(away @ losses / (away @ away))
    return CurveEnd(loss=float(losses.mean() + slope * (last - steps.mean())), fall=-slope * LAST_SHARE * last)


def mean_end(curves: Iterable[Sequence[Point]]) -> CurveEnd | None:
    """Return the mean end of the curves of an arm's runs, those that have one; None where none has."""
    ends = [end for end in map(end_of_curve, curves) if end is not None]
    if not ends:
        return None
    return CurveEnd(loss=fmean(end.loss for end in ends), fall=fmean(end.fall for end in ends))


def rate_at_edge(results: Results, arm: str) -> bool | None:
    """Tell whether an arm's learning rate, or its encoding's, is at the edge of those that it tried.

    None where it tried one value alone of either. A rate that diverged was tried.
    """
    trials = [entry for entry in results.tuning if entry.arm == arm]
    tried = {
        "learning_rate": {entry.learning_rate for entry in (*results.grid, *trials) if entry.arm == arm},
        "encoding_learning_rate": {entry.encoding_learning_rate for entry in trials},
    }
    several = [name for name, values in tried.items() if len(values) > 1]
    chosen = {entry.learning_rate for entry in results.grid if entry.arm == arm and entry.chosen}
    own = next((entry for entry in results.arms if entry.name == arm), None)
    if not several or own is None:
        return None
    if chosen:
        return at_edge(chosen.pop(), list(tried["learning_rate"]))
    return any(at_edge(getattr(own, name), list(tried[name])) for name in several)


def at_edge(value: float | None, tried: Sequence[float | None]) -> bool:
    """Tell whether a value is the lowest or the highest of several that were tried."""
    known = [one for one in set(tried) if one is not None]
    return len(known) > 1 and value in (min(known), max(known))
