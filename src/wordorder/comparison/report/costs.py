"""The costs of an arm that quality is drawn against, each with its unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.table import lines
from wordorder.comparison.results_file import ArmResult, Results, Summary
from wordorder.comparison.statistics.pareto import Front, Point, pareto_front
from wordorder.comparison.statistics.summary import centre


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One cost of an arm, with its label and its unit."""

    key: str
    title: str
    """Label of an axis, with the unit."""
    short: str
    """Short name, for the button that chooses the cost and for a sentence."""
    value: Callable[[Summary, ArmResult], float | None]
    """Function from an arm's summary and its entry in "arms" to the cost in the title's unit."""
    more_is_better: bool = False


def _measured(key: str, unit: float = 1.0) -> Callable[[Summary, ArmResult], float | None]:
    def value(summary: Summary, _: ArmResult) -> float | None:
        # The median where there is one: a run that had to wait for the machine moves a mean far.
        entry = summary.columns.get(key)
        found = None if entry is None else entry.mean if entry.median is None else entry.median
        return None if found is None else found / unit

    return value


COSTS = (
    Cost(
        key="parameters",
        title="Parameters (millions)",
        short="Parameters",
        value=lambda _, arm: None if arm.total_parameters is None else arm.total_parameters / 1e6,
    ),
    Cost(
        key="flops_per_token",
        title="MFLOP per token (forward + backward)",
        short="FLOPs",
        value=lambda _, arm: None if arm.flops_per_token is None else arm.flops_per_token / 1e6,
    ),
    Cost(
        key="train_seconds",
        title="Training time (seconds per run, median)",
        short="Training time",
        value=_measured("train_seconds"),
    ),
    Cost(
        key="tokens_per_second",
        title="Tokens per second in training (median)",
        short="Speed",
        value=_measured("tokens_per_second"),
        more_is_better=True,
    ),
    Cost(
        key="peak_memory_bytes",
        title="Peak memory (MiB, median)",
        short="Memory",
        value=_measured("peak_memory_bytes", 2**20),
    ),
)


def costs_known(results: Results) -> list[Cost]:
    """Return the costs that at least one arm with a result has."""
    return [cost for cost in COSTS if front_of(results, cost).on]


def points_of(results: Results, cost: Cost) -> list[Point]:
    """Return every arm's cost and headline metric, best first."""
    metric, statistic = quality_of(results).key, results.statistic
    return [
        Point(name=arm.name, cost=cost.value(entry, arm), quality=centre(entry.columns.get(metric), statistic))
        for entry, arm in lines(results)
    ]


def front_of(results: Results, cost: Cost) -> Front:
    """Return the Pareto front of the headline metric against one cost."""
    return pareto_front(
        points_of(results, cost),
        more_is_better=quality_of(results).higher_is_better,
        more_cost_is_better=cost.more_is_better,
    )
