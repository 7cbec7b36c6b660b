"""The metric that arms are ranked by, its mean, median and spread, the scale to compare on, and earlier looks.

To add seeds, or to change what is compared, after a look makes false claims more frequent (docs/statistics.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from wordorder.comparison.results_file import Aggregate, Look, Results, Row, Summary, read_results
from wordorder.data.settings import generated_task
from wordorder.tasks import TASKS, Metric, known_metrics
from wordorder.tasks.task import ACCURACY, ANSWERS, PERPLEXITY, perplexity_of

METRICS = known_metrics()
"""Every metric that can be a headline, by its key in a row of results.json."""


def beside(results: Results) -> tuple[Metric, ...]:
    """Return the metrics that the table of a results file shows after its headline."""
    task, headline = TASKS.get(results.task), quality_of(results).key
    if task is None:
        return ()
    of_answers = _is_generated(results) and task.answer_metrics
    shown = (*task.answer_metrics, PERPLEXITY) if of_answers else task.beside
    return tuple(metric for metric in shown if metric.key != headline)


def quality_of(results: Results) -> Metric:
    """Return the headline metric of a results file: the one it names, or else its task's, or else perplexity."""
    usual = _usual(results.task, generated=_is_generated(results))
    return usual if results.metric == usual.key else METRICS.get(results.metric or "", usual)


def _is_generated(results: Results) -> bool:
    return generated_task(str(results.recipe.data.get("source"))) is not None


def _usual(task: str, *, generated: bool) -> Metric:
    return TASKS[task].headline_of(generated) if task in TASKS else PERPLEXITY


def metric_of(task: str, select: str, *, generated: bool = False) -> str:
    """Return the headline metric's key for a recipe, whose source may be a generated task."""
    return select if select in METRICS else _usual(task, generated=generated).key


class Floor(NamedTuple):
    """The share that guessing one answer always is right in."""

    answer: str
    share: float
    texts: int

    def is_beaten(self, value: float) -> bool:
        """Return whether a share is above the floor by more than two standard errors of so many texts."""
        return value > self.share + 2 * math.sqrt(self.share * (1 - self.share) / self.texts)


def floor_of(results: Results) -> Floor | None:
    """Return the most frequent answer of the reported split; None where it is not known or the metric no share."""
    parts: Mapping[str, Any] = results.data
    classes: Mapping[str, int] = parts.get(results.split, {}).get("classes", {})
    if quality_of(results).key not in (ACCURACY.key, ANSWERS.key):
        return None
    texts = sum(classes.values())
    answer = max(classes, key=lambda name: classes[name], default=None)
    return None if answer is None else Floor(answer, classes[answer] / texts, texts)


def loss_unit(results: Results) -> str:
    """Return the unit of the loss of a results file."""
    task = TASKS.get(results.task)
    return "nats" if task is None else task.loss_unit


def is_marked_optimistic(results: Results) -> bool:
    """Tell whether a test score also chose the checkpoint; a validation score is named as one anyway."""
    return results.optimistic and results.split == "test"


def lower_is_better(metric: str) -> bool:
    """Tell whether lower values of any metric, the loss included, are better."""
    return metric not in METRICS or not METRICS[metric].higher_is_better


SEEDS_FOR_A_SPREAD = 3
"""Smallest number of seeds for which a spread is shown: nobody should believe a standard deviation of two."""

NOT_A_METRIC = frozenset({"seed", "fold", "learning_rate", "encoding_learning_rate", "steps", "best_step"})


def mean_and_spread(values: Iterable[float]) -> dict[str, float | int | None]:
    """Return ``{"mean", "std", "n"}``; std is the sample standard deviation (n - 1), None for fewer than two values."""
    known = [value for value in values if math.isfinite(value)]
    return {
        "mean": fmean(known) if known else None,
        "std": stdev(known) if len(known) > 1 else None,
        "n": len(known),
    }


def median_and_range(values: Iterable[float]) -> dict[str, float | None]:
    """Return ``{"median", "low", "high"}``: the median, the lowest and the highest value."""
    known = [value for value in values if math.isfinite(value)]
    return {name: of(known) if known else None for name, of in (("median", median), ("low", min), ("high", max))}


def summarise(rows: Iterable[Row]) -> tuple[Summary, ...]:
    """Return one entry per arm with mean, median and spreads of every numeric column.

    The seeds of one fold are averaged first, because they share its test texts.
    """
    by_arm: dict[str, list[Row]] = {}
    for row in rows:
        by_arm.setdefault(row.arm, []).append(row)
    return tuple(Summary.model_validate({"arm": arm, **_columns(own)}) for arm, own in by_arm.items())


Unit = tuple[int | None, int]
"""Fold (None where there are none) and seed of one training."""


def by_run(results: Results) -> dict[str, dict[Unit, Row]]:
    """Return the rows of a results file by arm, in order of appearance, and by fold and seed."""
    found: dict[str, dict[Unit, Row]] = {}
    for row in results.rows:
        found.setdefault(row.arm, {})[row.fold, row.seed] = row
    return found


def baseline_of(results: Results) -> str | None:
    """Return the arm that the others are compared with: the one that the file names, or its first."""
    return results.baseline or next((arm.name for arm in results.arms), None)


def confidence_of(results: Results) -> float:
    """Return the confidence of a results file's intervals; its claims are at the level 1 less it."""
    return float(results.compare.confidence or 0.95)


def repeats(results: Results) -> tuple[str, int]:
    """Return the unit of the spread of a results file, "seed" or "fold", and how many of them are planned."""
    planned = results.planned
    return ("fold", len(planned.folds)) if planned.folds else ("seed", len(planned.seeds))


def centre(column: Aggregate | None, statistic: str) -> float | None:
    """Return the mean or the median of a summary's column, which stands for an arm; None if nothing is known."""
    if column is None:
        return None
    return column.median if statistic == "median" else column.mean


def middle(column: Aggregate | None) -> float | None:
    """Return the median, which a run on a busy machine does not move; without one, the mean."""
    return None if column is None else column.mean if column.median is None else column.median


def spread(column: Aggregate, statistic: str) -> tuple[float, float] | None:
    """Return mean plus and minus one standard deviation, or for a median lowest and highest; None below three seeds."""
    if column.n < SEEDS_FOR_A_SPREAD:
        return None
    if statistic == "median":
        return None if column.low is None or column.high is None else (float(column.low), float(column.high))
    std = float(column.std or 0.0)
    return None if column.mean is None else (float(column.mean) - std, float(column.mean) + std)


def _columns(rows: list[Row]) -> dict[str, Aggregate]:
    columns: dict[str, Aggregate] = {}
    for name in dict.fromkeys(name for row in rows for name in row.numbers if name not in NOT_A_METRIC):
        by_fold: dict[Hashable, list[float]] = {}  # without folds each row stands by itself
        for number, row in enumerate(rows):
            value = row.score(name)
            if value is not None:
                by_fold.setdefault(("row", number) if row.fold is None else row.fold, []).append(float(value))
        values = [fmean(own) for own in by_fold.values()]
        columns[name] = Aggregate.model_validate({**mean_and_spread(values), **median_and_range(values)})
    return columns


Rows = Mapping[Unit, Row]
EQUIVALENCE = 0.01
"""Margin of equivalence where the recipe names none: 1% of a perplexity, 0.01 of an accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The scale on which a difference is measured; greater than 0 means that the arm is better."""

    quality: Metric
    median: bool
    confidence: float
    equivalence: float

    @property
    def logarithmic(self) -> bool:
        """True for perplexities, which seeds multiply: they are the exp of a loss."""
        return self.quality.key == "perplexity"

    @property
    def measure(self) -> str:
        """The name of what is compared: "log perplexity", "accuracy"."""
        return f"{'log ' * self.logarithmic}{self.quality.name}"

    @property
    def level(self) -> float:
        """The level of claims."""
        return round(1 - self.confidence, 12)  # 1 - 0.95 is a little more than 0.05

    @property
    def margin(self) -> float:
        """The largest difference that counts as none: `equivalence` as a ratio, or of the perfect value."""
        return math.log1p(self.equivalence) if self.logarithmic else self.equivalence * (self.quality.perfect or 1.0)

    def value(self, row: Row) -> float | None:
        """Return the headline metric of a run; None if it is not a number, or the largest perplexity that is given."""
        value = row.score(self.quality.key)
        if value is None or not math.isfinite(value):
            return None
        if self.logarithmic and not 0 < value < perplexity_of(math.inf):
            return None
        return float(value)

    def goodness(self, value: float) -> float:
        """Return a value on the scale."""
        scaled = math.log(value) if self.logarithmic else value
        return scaled if self.quality.higher_is_better else -scaled

    def scores(self, rows: Rows) -> dict[int | str, float]:
        """Return the score of each seed or, where there are folds, of each fold: the mean of its seeds."""
        values: dict[int | str, list[float]] = {}
        for (fold, seed), row in rows.items():
            value = self.value(row)
            if value is not None:
                values.setdefault(f"fold {fold}" if fold is not None else seed, []).append(value)
        return {unit: self.goodness(fmean(own)) for unit, own in values.items()}


def scale_of(results: Results) -> Scale:
    """Return the scale of a results file."""
    given = results.compare.equivalence
    return Scale(
        quality=quality_of(results),
        median=results.statistic == "median",
        confidence=confidence_of(results),
        equivalence=EQUIVALENCE if given is None else given,
    )


_ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")


def with_look(results: Results) -> tuple[Look, ...]:
    """Return the looks of a results file, with one at its present content if that differs from the last one."""
    looks = results.looks
    if not results.rows or len(_before(results)) < len(looks):
        return looks
    return (*looks, _now(results, date=datetime.now(UTC).isoformat(timespec="seconds")))


def earlier_looks(path: Path) -> tuple[Look, ...]:
    """Return the looks of a results file that is about to be overwritten; none if they cannot be read."""
    try:
        looks = read_results(path).looks
        for look in looks:  # in a file that somebody changed one may have no runs, or a number that cannot be written
            _in_words(look)
        return looks
    except (ValueError, LookupError, ArithmeticError):
        return ()


def looks_in_words(results: Results) -> str:
    """Return the earlier looks at the results as a sentence; "" at the first look."""
    before = _before(results)
    if not before:
        return ""
    number = len(before)
    which = f"{_ORDINALS[number]} look" if number < len(_ORDINALS) else f"Look {number + 1}"
    return (
        f"{which} at these results; earlier looks: {'; '.join(map(_in_words, before))}. Adding runs, or changing "
        "what is compared, after a look makes false claims more frequent than the level says, in every kind of claim."
    )


def _before(results: Results) -> tuple[Look, ...]:
    looks = results.looks
    return looks[:-1] if looks and looks[-1] == _now(results, date=looks[-1].date) else looks


def _now(results: Results, date: str) -> Look:
    runs = {arm: sorted(units, key=lambda unit: (unit[0] or 0, unit[1])) for arm, units in by_run(results).items()}
    return Look(
        date=date,
        runs=dict(Counter(row.arm for row in results.rows)),
        seeds={
            arm: tuple(seed if fold is None else (fold, seed) for fold, seed in units) for arm, units in runs.items()
        },
        baseline=results.compare.baseline or None,
        confidence=confidence_of(results),
        equivalence=scale_of(results).equivalence,
        metric=quality_of(results).key,
        statistic=results.statistic,
    )


def _in_words(look: Look) -> str:
    numbers = sorted(set(look.runs.values()))
    n = f"n = {numbers[0]}" if len(numbers) == 1 else f"n = {numbers[0]} to {numbers[-1]}"
    family = f"against {look.baseline}" if look.baseline else "all pairs of arms"
    day = f", {look.date[:10]}" if look.date else ""
    return f"{n} ({family}, confidence {100 * look.confidence:.3g}%{_seeds_in_words(look)}{day})"


def _seeds_in_words(look: Look) -> str:
    units = [unit for units_of_arm in look.seeds.values() for unit in units_of_arm]
    of_folds = any(isinstance(unit, tuple) for unit in units)
    numbers = sorted({unit[0] if isinstance(unit, tuple) else unit for unit in units})
    if not numbers:
        return ""
    in_a_row = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    listed = f"{numbers[0]} to {numbers[-1]}" if in_a_row else ", ".join(map(str, numbers))
    return f", {'fold' if of_folds else 'seed'}{'s' * (len(numbers) > 1)} {listed}"
