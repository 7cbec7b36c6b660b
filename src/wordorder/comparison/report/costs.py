"""The costs of an arm that quality is drawn against, each with its unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.table import lines
from wordorder.comparison.statistics.pareto import Front, Point, pareto_front
from wordorder.comparison.statistics.summary import centre, statistic_of

_Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One cost of an arm, with its label and its unit."""

    key: str
    title: str
    """Label of an axis, with the unit."""
    short: str
    """Short name, for the button that chooses the cost and for a sentence."""
    value: Callable[[_Entry, _Entry], float | None]
    """Function from an arm's summary and its entry in "arms" to the cost in the title's unit."""
    more_is_better: bool = False


def _measured(key: str, unit: float = 1.0) -> Callable[[_Entry, _Entry], float | None]:
    def value(summary: _Entry, _: _Entry) -> float | None:
        # The median where there is one: a run that had to wait for the machine moves a mean far.
        entry: _Entry = summary.get(key) or {}
        found = entry.get("median") if entry.get("median") is not None else entry.get("mean")
        return None if found is None else found / unit

    return value


COSTS = (
    Cost(
        key="parameters",
        title="Parameters (millions)",
        short="Parameters",
        value=lambda _, arm: arm["parameters"]["total"] / 1e6 if arm["parameters"] else None,
    ),
    Cost(
        key="flops_per_token",
        title="MFLOP per token (forward + backward)",
        short="FLOPs",
        value=lambda _, arm: None if arm["flops_per_token"] is None else arm["flops_per_token"] / 1e6,
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


def costs_known(results: Mapping[str, Any]) -> list[Cost]:
    """Return the costs that at least one arm with a result has."""
    return [cost for cost in COSTS if front_of(results, cost).on]


def points_of(results: Mapping[str, Any], cost: Cost) -> list[Point]:
    """Return every arm's cost and headline metric, best first."""
    quality, statistic = quality_of(results), statistic_of(results)
    return [
        Point(name=arm["name"], cost=cost.value(entry, arm), quality=centre(entry.get(quality.key), statistic))
        for entry, arm in lines(results)
    ]


def front_of(results: Mapping[str, Any], cost: Cost) -> Front:
    """Return the Pareto front of the headline metric against one cost."""
    return pareto_front(
        points_of(results, cost),
        more_is_better=quality_of(results).higher_is_better,
        more_cost_is_better=cost.more_is_better,
    )
