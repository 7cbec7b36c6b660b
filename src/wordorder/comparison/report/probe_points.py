"""The results of a probe over the seeds: points to draw and a table, from the results file alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from wordorder.comparison.report.numbers import with_spread
from wordorder.comparison.results_file import Aggregate, ProbeResult, ProbeRow

Place = int | float | str
"""Place on the x axis: a number or a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePoint:
    """Mean and sample standard deviation of a probe's number over the runs of an arm; std is None for one run."""

    x: Place
    mean: float
    std: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePanel:
    """One panel with the points of every arm; a probe with groups has one panel for each."""

    group: str
    """Name of the group; empty if the probe has no groups."""
    xs: tuple[Place, ...]
    """Places on the x axis: numbers in order, or labels in order of appearance."""
    points: Mapping[str, Sequence[ProbePoint]]
    """Arm -> points in the order of xs."""


def probe_panels(probe: ProbeResult, arms: Sequence[str]) -> list[ProbePanel]:
    """Return the panels of one entry of results["probes"].

    Args:
        probe: the entry.
        arms: names in the order in which they are drawn; an arm without a value is left out.
    """
    rows = [row for row in probe.rows if row.value is not None]
    groups = list(dict.fromkeys(row.group or "" for row in rows))
    return [_panel(probe, group, [row for row in rows if (row.group or "") == group], arms) for group in groups]


def _panel(probe: ProbeResult, group: str, rows: Sequence[ProbeRow], arms: Sequence[str]) -> ProbePanel:
    xs = list(dict.fromkeys(row.x for row in rows))
    if probe.x_kind == "number":
        xs = [*sorted(x for x in xs if not isinstance(x, str)), *(x for x in xs if isinstance(x, str))]
    seen: dict[tuple[str, Place], list[float]] = {}
    for row in rows:
        if row.value is not None:
            seen.setdefault((row.arm, row.x), []).append(float(row.value))
    points = {
        arm: [_point(x, seen[arm, x]) for x in xs if (arm, x) in seen]
        for arm in arms
        if any((arm, x) in seen for x in xs)
    }
    return ProbePanel(group=group, xs=tuple(xs), points=points)


def _point(x: Place, values: Sequence[float]) -> ProbePoint:
    return ProbePoint(x=x, mean=fmean(values), std=stdev(values) if len(values) > 1 else None, n=len(values))


def spans_octaves(xs: Sequence[Place]) -> bool:
    """Tell whether numbers suit a logarithmic axis: all above zero, and the largest at least 4 times the smallest."""
    numbers = [x for x in xs if isinstance(x, int | float)]
    return len(numbers) > 2 and min(numbers) > 0 and max(numbers) >= 4 * min(numbers)


def probe_table(panel: ProbePanel) -> list[tuple[str, list[str]]]:
    """Return per arm the cells of a panel, one for each x: mean and spread, or the mean alone below three seeds."""
    return [
        (arm, [with_spread(_aggregate(next((point for point in points if point.x == x), None))) for x in panel.xs])
        for arm, points in panel.points.items()
    ]


def _aggregate(point: ProbePoint | None) -> Aggregate | None:
    return None if point is None else Aggregate(mean=point.mean, std=point.std, n=point.n)
