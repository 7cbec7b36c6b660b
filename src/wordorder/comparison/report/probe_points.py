"""The results of a probe over the seeds: points to draw and a table, from the results file alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wordorder.comparison.report.numbers import with_spread
from wordorder.comparison.statistics.summary import mean_and_spread


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePanel:
    """One panel with the points of every arm; a probe with groups has one panel for each."""

    group: str
    """Name of the group; empty if the probe has no groups."""
    xs: tuple[Any, ...]
    """Places on the x axis: numbers in order, or labels in order of appearance."""
    points: Mapping[str, Sequence[Mapping[str, Any]]]
    """Arm -> ``{"x", "mean", "std", "n"}`` in the order of xs; std is None for a single seed."""


def probe_panels(probe: Mapping[str, Any], arms: Sequence[str]) -> list[ProbePanel]:
    """Return the panels of one entry of results["probes"].

    Args:
        probe: the entry.
        arms: names in the order in which they are drawn; an arm without a value is left out.
    """
    rows = [row for row in probe["rows"] if row.get("value") is not None]
    groups = list(dict.fromkeys(str(row.get("group") or "") for row in rows))
    return [
        _panel(probe, group, [row for row in rows if str(row.get("group") or "") == group], arms) for group in groups
    ]


def _panel(probe: Mapping[str, Any], group: str, rows: Sequence[Mapping[str, Any]], arms: Sequence[str]) -> ProbePanel:
    xs = list(dict.fromkeys(row["x"] for row in rows))
    if probe["x_kind"] == "number":
        xs.sort()
    seen: dict[tuple[str, Any], list[float]] = {}
    for row in rows:
        seen.setdefault((row["arm"], row["x"]), []).append(float(row["value"]))
    points = {
        arm: [{"x": x, **mean_and_spread(seen[arm, x])} for x in xs if (arm, x) in seen]
        for arm in arms
        if any((arm, x) in seen for x in xs)
    }
    return ProbePanel(group=group, xs=tuple(xs), points=points)


def spans_octaves(xs: Sequence[Any]) -> bool:
    """Tell whether numbers suit a logarithmic axis: all above zero, and the largest at least 4 times the smallest."""
    numbers = [x for x in xs if isinstance(x, int | float)]
    return len(numbers) > 2 and min(numbers) > 0 and max(numbers) >= 4 * min(numbers)


def probe_table(panel: ProbePanel) -> list[tuple[str, list[str]]]:
    """Return per arm the cells of a panel, one for each x: mean and spread, or the mean alone below three seeds."""
    return [
        (arm, [with_spread(next((point for point in points if point["x"] == x), None)) for x in panel.xs])
        for arm, points in panel.points.items()
    ]
