"""Make the table of the learning rates that were tried: one row per arm, one column per rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from wordorder.comparison.quality import METRICS, loss_unit, lower_is_better, quality_of
from wordorder.comparison.report.numbers import MISSING, significant
from wordorder.comparison.results_file import Results
from wordorder.comparison.statistics.summary import repeats
from wordorder.comparison.tuning import Rates, at_edge, best_of


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """The outcome of some rates of an arm."""

    median: float | None
    failed: int


def rates_tried(results: Results) -> RatesTried | None:
    """Return the table of a results file; None if every arm had the rate of its recipe."""
    if results.grid:
        tried = _of_grid(results)
        best = {entry.arm: Rates(entry.learning_rate) for entry in results.grid if entry.chosen}
        meaning = (
            f"Validation {quality_of(results).name} at each learning rate, median over the {repeats(results)[0]}s; an "
            "arm's result is that at its best rate (bold)."
        )
    elif results.tuning:
        tried, best = _of_trials(results), tuned_rates(results)
        meaning = _meaning_of_trials(results, tried)
    else:
        return None
    columns = sorted({rates for of in tried.values() for rates in of}, key=lambda one: (one.rate, one.factor or 0.0))
    rows: list[RatesOfArm] = []
    for arm, of in tried.items():
        chosen = best.get(arm)
        cells = tuple((_in_words(of.get(rates)), rates == chosen) for rates in columns)
        edge = chosen is not None and (
            at_edge(chosen.rate, [rates.rate for rates in of]) or at_edge(chosen.factor, [rates.factor for rates in of])
        )
        rows.append(RatesOfArm(arm=arm, cells=cells, edge=edge))
    if any(row.edge for row in rows):
        meaning += " * The best rate is the lowest or the highest that was tried: a wider grid might help this arm."
    return RatesTried(rates=tuple(rates.words for rates in columns), rows=tuple(rows), meaning=meaning)


def tuned_rates(results: Results) -> dict[str, Rates]:
    """Return the best rates of each arm that a trial could train."""
    sign = 1 if lower_is_better(results.selection) else -1
    scores = {
        arm: {
            rates: {seed: None if value is None else sign * value for seed, value in own.items()}
            for rates, own in of.items()
        }
        for arm, of in _scores(results).items()
    }
    return {arm: best for arm, own in scores.items() if (best := best_of(own)) is not None}


def _scores(results: Results) -> dict[str, dict[Rates, dict[int, float | None]]]:
    """Return arm -> rates -> seed -> score of the trials; None for one that failed."""
    found: dict[str, dict[Rates, dict[int, float | None]]] = {}
    for trial in results.tuning:
        rates = Rates(trial.learning_rate, trial.encoding_learning_rate)
        found.setdefault(trial.arm, {}).setdefault(rates, {})[trial.seed] = trial.score(results.selection)
    return found


def _of_trials(results: Results) -> dict[str, dict[Rates, _Tried]]:
    found: dict[str, dict[Rates, _Tried]] = {}
    for arm, of in _scores(results).items():
        for rates, own in of.items():
            known = [value for value in own.values() if value is not None]
            tried = _Tried(median=median(known) if known else None, failed=len(own) - len(known))
            found.setdefault(arm, {})[rates] = tried
    return found


def _of_grid(results: Results) -> dict[str, dict[Rates, _Tried]]:
    found: dict[str, dict[Rates, _Tried]] = {}
    for entry in results.grid:
        tried = _Tried(median=entry.median, failed=entry.failed)
        found.setdefault(entry.arm, {})[Rates(entry.learning_rate)] = tried
    return found


def _meaning_of_trials(results: Results, tried: Mapping[str, Mapping[Rates, _Tried]]) -> str:
    metric, seeds = results.selection, len({trial.seed for trial in results.tuning})
    name = f"loss ({loss_unit(results)})" if metric not in METRICS else METRICS[metric].name
    own = any(rates.factor is not None for of in tried.values() for rates in of)
    over = "one seed" if seeds == 1 else f"median over up to {seeds} seeds, the better half on each further one"
    counts = [sum(trial.arm == arm for trial in results.tuning) for arm in tried]
    trials = f"{counts[0]}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    factors = " (x4: 4 times that for the encoding)" if own else ""
    return (
        f"Validation {name} after training with each learning rate{factors}, {over}; the best (bold) is used for every "
        f"seed of that arm. Tuned over {trials} trials per arm."
    )


def _in_words(tried: _Tried | None) -> str:
    if tried is None or tried.median is None:
        return "failed" if tried is not None and tried.failed else MISSING
    return significant(tried.median) + (f" ({tried.failed} failed)" if tried.failed else "")
