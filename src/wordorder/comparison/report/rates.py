"""Make the table of the learning rates that were tried: one row per arm, one column per rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from wordorder.comparison.quality import METRICS, loss_unit, quality_of
from wordorder.comparison.report.numbers import MISSING, significant
from wordorder.comparison.results_file import Results
from wordorder.comparison.statistics.plateau import rate_at_edge
from wordorder.comparison.statistics.summary import repeats
from wordorder.comparison.tuning import Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesOfArm:
    """The row of one arm."""

    arm: str
    cells: tuple[tuple[str, bool], ...]
    """For each rate the score in words, and whether the arm was given this rate."""
    edge: bool
    """True if the arm's rate, or that of its encoding, is the lowest or the highest that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesTried:
    """The table of rates, one row per arm."""

    rates: tuple[str, ...]
    rows: tuple[RatesOfArm, ...]
    meaning: str
    """Explanation of the numbers, for the caption."""


_Tried = Mapping[str, Mapping[Rates, tuple[float | None, int]]]
"""Arm -> rates -> the median score, and how many trials failed."""


def rates_tried(results: Results) -> RatesTried | None:
    """Return the table of a results file; None if every arm had the rate of its recipe."""
    if results.grid:
        tried = {
            arm: {Rates(own.learning_rate): (own.median, own.failed) for own in results.grid if own.arm == arm}
            for arm in dict.fromkeys(entry.arm for entry in results.grid)
        }
        chosen = {entry.arm: Rates(entry.learning_rate) for entry in results.grid if entry.chosen}
        meaning = (
            f"Validation {quality_of(results).name} at each learning rate, median over the {repeats(results)[0]}s; a "
            "model's result is that at its best rate (bold)."
        )
    elif results.tuning:
        tried = _of_trials(results)
        given = {arm.name: (arm.learning_rate, arm.encoding_learning_rate) for arm in results.arms}
        # an arm that no rate could train has that of its recipe, which was not chosen
        chosen = {
            arm: rates
            for arm, of in tried.items()
            for rates, (middle, _) in of.items()
            if rates == given.get(arm) and middle is not None
        }
        meaning = _meaning_of_trials(results, tried)
    else:
        return None
    columns = sorted({rates for of in tried.values() for rates in of}, key=lambda one: (one.rate, one.factor or 0.0))
    rows: list[RatesOfArm] = []
    for arm, of in tried.items():
        cells = tuple((_in_words(*of.get(rates, (None, 0))), rates == chosen.get(arm)) for rates in columns)
        rows.append(RatesOfArm(arm=arm, cells=cells, edge=arm in chosen and rate_at_edge(results, arm) is True))
    if any(row.edge for row in rows):
        meaning += " * The best rate is the lowest or the highest that was tried: a wider grid might help this model."
    return RatesTried(rates=tuple(rates.words for rates in columns), rows=tuple(rows), meaning=meaning)


def _of_trials(results: Results) -> _Tried:
    scores: dict[str, dict[Rates, list[float | None]]] = {}
    for trial in results.tuning:
        rates = Rates(trial.learning_rate, trial.encoding_learning_rate)
        scores.setdefault(trial.arm, {}).setdefault(rates, []).append(trial.score(results.selection))

    def of_rates(own: list[float | None]) -> tuple[float | None, int]:
        known = [value for value in own if value is not None]
        return median(known) if known else None, len(own) - len(known)

    return {arm: {rates: of_rates(own) for rates, own in of.items()} for arm, of in scores.items()}


def _meaning_of_trials(results: Results, tried: _Tried) -> str:
    metric, seeds = results.selection, len({trial.seed for trial in results.tuning})
    name = f"loss ({loss_unit(results)})" if metric not in METRICS else METRICS[metric].name
    own = any(rates.factor is not None for of in tried.values() for rates in of)
    over = "one seed" if seeds == 1 else f"median over up to {seeds} seeds, the better half on each further one"
    counts = [sum(trial.arm == arm for trial in results.tuning) for arm in tried]
    trials = f"{counts[0]}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    factors = " (x4: 4 times that for the encoding)" if own else ""
    return (
        f"Validation {name} after training with each learning rate{factors}, {over}; the best (bold) is used for every "
        f"seed of that model. Tuned over {trials} trials per model."
    )


def _in_words(middle: float | None, failed: int) -> str:
    if middle is None:
        return "failed" if failed else MISSING
    return significant(middle) + (f" ({failed} failed)" if failed else "")
