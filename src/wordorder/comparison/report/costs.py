"""The costs of an arm that quality is drawn against, each with its unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.table import lines
from wordorder.comparison.results_file import ArmResult, Results, Summary
from wordorder.comparison.statistics.pareto import Front, Point, pareto_front
from wordorder.comparison.statistics.summary import centre, middle


@dataclass(frozen=True, slots=True)
class Cost:
    """One cost of an arm."""

    key: str
    title: str
    """Label of an axis, with the unit."""
    short: str
    """Short name, for the button that chooses the cost and for a sentence."""
    measured: Callable[[Summary, ArmResult], float | None]
    """Function from an arm's summary and its entry in "arms" to the cost."""
    unit: float = 1.0
    """Number of the results file that is 1 in the title's unit."""
    more_is_better: bool = False

    def value(self, entry: Summary, arm: ArmResult) -> float | None:
        """Return the cost of an arm in the title's unit."""
        found = self.measured(entry, arm)
        return None if found is None else found / self.unit


def _middle(key: str) -> Callable[[Summary, ArmResult], float | None]:
    return lambda entry, _: middle(entry.columns.get(key))


COSTS = (
    Cost("parameters", "Parameters (millions)", "Parameters", lambda _, arm: arm.total_parameters, 1e6),
    Cost("flops_per_token", "MFLOP per token (forward + backward)", "FLOPs", lambda _, arm: arm.flops_per_token, 1e6),
    Cost("train_seconds", "Training time (seconds per run, median)", "Training time", _middle("train_seconds")),
    Cost(
        "tokens_per_second",
        "Tokens per second in training (median)",
        "Speed",
        _middle("tokens_per_second"),
        more_is_better=True,
    ),
    Cost("peak_memory_bytes", "Peak memory (MiB, median)", "Memory", _middle("peak_memory_bytes"), 2**20),
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
