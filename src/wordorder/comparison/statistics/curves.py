"""Read validation curves: how early an arm reaches the baseline's lowest loss, and whether training was long enough.

TUPE's paper claims its quality by the steps to a baseline's loss (Ke et al. 2021, https://arxiv.org/abs/2006.15595,
Sec. 4.2). A comparison that is read while the curves fall says who is fast, not who is best; and a rate at the edge of
those that were tried says that the arm was not tuned to its end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from wordorder.comparison.results_file import Results, Row, StepsToLoss
from wordorder.comparison.statistics.summary import baseline_of, by_run
from wordorder.tasks import TASKS

Curve = Sequence[tuple[float, float]]


def steps_to_loss(results: Results) -> tuple[StepsToLoss, ...]:
    """Return for every arm but the baseline the steps that it takes to the baseline's best validation loss.

    Per seed (and fold) that both were trained with; the arm's step is the first crossing of its own curve. Steps and
    share are medians, None where half of the runs or more never get there.
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
    """Return the target, the baseline's step there, the arm's, maybe infinite, and the resolution."""
    if not curve or not baseline:
        return None
    target = min(loss for _, loss in baseline)
    step = next(step for step, loss in baseline if loss == target)
    return (target, step, *first_step_at(curve, target)) if step > 0 else None


def _curve(row: Row) -> Curve:
    return sorted((step, loss) for step, loss in row.curve if loss is not None)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


MIDDLE = (0.5, 0.75)
"""Shares of the steps between which the fall of a curve is measured: before a rate that decays to 0 flattens it."""
LEAST_RELATIVE_FALL = 0.02
"""Fall there per tenth of the steps, as a share of the loss, from which on training is unfinished. The committed curves
fall by up to 1% on a plateau, and by 2.4% or more elsewhere."""
LEAST_FALL = 0.001
"""Fall in units of the loss below which no curve falls: a loss near zero, as of a solved task, halves for ever."""
LEAST_TOKENS = 20
"""Tokens per parameter below which less than one pass has hardly begun (Hoffmann et al. 2022)."""
FINISHED_UNKNOWN, STILL_IMPROVING, HARDLY_BEGUN = "unknown", "still improving", "hardly begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Whether the training of an arm was long enough, as far as its own curves can tell."""

    state: str
    """"hardly begun", "still improving", or "unknown": a flat curve may be a plateau that longer training leaves."""
    passes: float | None
    """How often the training text was read; None where it is generated, or its length not known."""
    tokens_per_parameter: float | None
    fall: float | None
    """Share of the loss that is lost per tenth of the steps between `MIDDLE`, mean over runs; None without a curve."""


def finished(results: Results, arm: str) -> Finished:
    """Judge the training of an arm by the tokens that it read and the middle of its validation curves."""
    rows = [row for row in results.rows if row.arm == arm]
    read = [tokens for row in rows if (tokens := _tokens_read(row))]
    tokens = fmean(read) if read else None
    passes = None if tokens is None else _passes(results, rows, tokens)
    own = next((entry.total_parameters for entry in results.arms if entry.name == arm), None)
    per_parameter = None if tokens is None or not own else tokens / own
    falls = [fall for row in rows if (fall := _fall(row)) is not None]
    fall = fmean(share for share, _ in falls) if falls else None
    state = FINISHED_UNKNOWN
    if passes is not None and per_parameter is not None and passes < 1 and per_parameter < LEAST_TOKENS:
        state = HARDLY_BEGUN
    elif fall is not None and fall >= LEAST_RELATIVE_FALL and fmean(size for _, size in falls) >= LEAST_FALL:
        state = STILL_IMPROVING
    return Finished(state=state, passes=passes, tokens_per_parameter=per_parameter, fall=fall)


def _tokens_read(row: Row) -> float | None:
    speed = row.score("tokens_per_second")  # the row's "tokens" are those of the test
    return None if speed is None or row.train_seconds is None else float(speed * row.train_seconds)


def _passes(results: Results, rows: Sequence[Row], tokens: float) -> float | None:
    train, kind = results.data.get("train"), TASKS.get(results.task)
    if not isinstance(train, dict) or kind is None or str(results.recipe.data.get("source")).startswith("task:"):
        return None
    if kind.labels is None and not kind.translates:
        length = train.get("tokens")
        return tokens / length if isinstance(length, int) and length else None
    examples, training = train.get("segments"), results.recipe.training
    batch = training.get("batch_size")
    steps = [row.steps for row in rows if row.steps]
    if not (isinstance(examples, int) and isinstance(batch, int) and examples and steps):
        return None
    return fmean(steps) * batch / examples


def _fall(row: Row) -> tuple[float, float] | None:
    """Return the fall of a curve per tenth of its steps between `MIDDLE`, as a share of the loss and in its units."""
    curve = _curve(row)
    if len(curve) < 2 or curve[0][0] > MIDDLE[1] * curve[-1][0]:
        return None
    steps, losses = zip(*curve, strict=True)
    start, end = (float(np.interp([share * steps[-1]], steps, losses)[0]) for share in MIDDLE)
    tenths = 10 * (MIDDLE[1] - max(MIDDLE[0], steps[0] / steps[-1]))
    return ((start - end) / start / tenths, (start - end) / tenths) if start > 0 and tenths > 0 else None


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
