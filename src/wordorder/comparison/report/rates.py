"""Make the table of the learning rates that a comparison tried, from the results file alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wordorder.comparison.quality import METRICS, loss_unit, lower_is_better, quality_of
from wordorder.comparison.report.numbers import MISSING, significant
from wordorder.comparison.results_file import Results
from wordorder.comparison.statistics.summary import repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesOfArm:
    """The row of one arm."""

    arm: str
    cells: tuple[tuple[str, bool], ...]
    """For each rate the score in words, and whether the arm was given this rate."""
    edge: bool
    """True if the arm's rate is the lowest or the highest that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesTried:
    """The table of rates, one row per arm."""

    rates: tuple[str, ...]
    rows: tuple[RatesOfArm, ...]
    meaning: str
    """Explanation of the numbers, for the caption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """One rate of one arm."""

    arm: str
    rate: float
    score: float | None
    chosen: bool = False
    lost: int = 0
    """Number of runs with this rate that failed."""
    failed: bool = False


def rates_tried(results: Results) -> RatesTried | None:
    """Return the table of a results file; None if every arm had the rate of its recipe."""
    if results.grid:
        name = quality_of(results).name
        meaning = (
            f"Validation {name} at each learning rate, median over the {repeats(results)[0]}s; an arm's result is that "
            "at its best rate (bold)."
        )
        tried = [
            _Tried(
                arm=entry.arm,
                rate=entry.learning_rate,
                score=entry.median,
                chosen=entry.chosen,
                lost=entry.failed,
                failed=entry.failed > 0,
            )
            for entry in results.grid
        ]
        return _table(tried, quality_of(results).higher_is_better, meaning)
    if not results.tuning:
        return None
    metric = results.selection
    name = f"loss ({loss_unit(results)})" if metric not in METRICS else METRICS[metric].name
    meaning = (
        f"Validation {name} after training with each learning rate, one seed; the best (bold) is used for every seed "
        "of that arm."
    )
    tried = [
        _Tried(arm=trial.arm, rate=trial.learning_rate, score=trial.score(metric), failed=trial.status == "failed")
        for trial in results.tuning
    ]
    return _table(tried, not lower_is_better(metric), meaning)


def _table(entries: Sequence[_Tried], higher_is_better: bool, meaning: str) -> RatesTried:
    rates = sorted({entry.rate for entry in entries})
    found = {(entry.arm, entry.rate): entry for entry in entries}
    choose = max if higher_is_better else min
    rows: list[RatesOfArm] = []
    for arm in dict.fromkeys(entry.arm for entry in entries):
        values = {rate: found[arm, rate].score for rate in rates if (arm, rate) in found}
        known = {rate: value for rate, value in values.items() if value is not None}
        # A grid says itself which rate it chose: one that some seeds failed at is not taken, however good the others.
        named = [rate for rate in known if found[arm, rate].chosen]
        best = named[0] if named else (choose(known, key=known.__getitem__) if known else None)
        cells = tuple((_text(found.get((arm, rate))), rate == best) for rate in rates)
        rows.append(RatesOfArm(arm=arm, cells=cells, edge=len(rates) > 1 and best in {rates[0], rates[-1]}))
    if any(row.edge for row in rows):
        meaning += " * The best rate is the lowest or the highest that was tried: a wider grid might help this arm."
    return RatesTried(rates=tuple(f"{rate:g}" for rate in rates), rows=tuple(rows), meaning=meaning)


def _text(entry: _Tried | None) -> str:
    if entry is None:
        return MISSING
    if entry.score is None:
        return "failed" if entry.failed else MISSING
    return significant(entry.score) + (f" ({entry.lost} failed)" if entry.lost else "")
