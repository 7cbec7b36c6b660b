"""Make the data that the report's scripts draw: one small JSON beside the results themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import fmean, median, stdev

from wordorder.comparison.costs import costs_known, front_of, points_of
from wordorder.comparison.report import differences
from wordorder.comparison.report.differences import with_spread
from wordorder.comparison.report.table import columns
from wordorder.comparison.results_file import Aggregate, Comparison, ProbeResult, Results
from wordorder.comparison.statistics.summary import loss_unit, mean_and_spread, quality_of, spread
from wordorder.tasks.task import LARGEST_LOSS


def view_of(results: Results) -> dict[str, object]:
    """Return the data that the scripts draw."""
    quality, statistic, styles = quality_of(results), results.statistic, arm_styles(results)
    entries = {entry.arm: entry for entry in results.summary}
    return {
        "arms": [{"name": name, **asdict(style)} for name, style in styles.items()],
        "curves": learning_curves(results),
        "curve_label": curve_label(results),
        "log_curves": in_perplexity(results),
        "targets": [{"value": value, "baseline": baseline} for value, baseline in target_lines(results)],
        "reached": [
            {"arm": entry.arm, "steps": entry.steps, "value": curve_value(results, entry.target)}
            for entry in results.steps_to_loss
            if entry.steps is not None and entry.target is not None and entry.target < LARGEST_LOSS
        ],
        "quality": {"title": columns(results)[0].title, "more_is_better": quality.higher_is_better},
        "ranges": {
            arm: spread(entry.columns[quality.key], statistic)
            for arm, entry in entries.items()
            if quality.key in entry.columns
        },
        "costs": [
            {
                "key": cost.key,
                "title": cost.title,
                "short": cost.short,
                "more_is_better": cost.more_is_better,
                "points": [asdict(point) for point in points_of(results, cost)],
                "words": front_of(results, cost).words,
            }
            for cost in costs_known(results)
        ],
        "differences": _differences(results),
        "probes": _probes(results),
    }


def _differences(results: Results) -> dict[str, object]:
    references, unit = differences.references(results), differences.unit_of(results)
    return {
        "title": differences.difference_title(results),
        "percent": unit.percent,
        "more_is_better": unit.higher_is_better,
        "reference": references[0] if references else None,
        "rows": [_difference(entry, unit) for entry in by_effect(results, references[0])] if references else [],
    }


def by_effect(results: Results, reference: str) -> list[Comparison]:
    """Return the comparisons with one model, the best first."""
    entries = differences.against(results, reference).values()
    return sorted(entries, key=lambda entry: -math.inf if entry.difference is None else entry.difference, reverse=True)


def _difference(entry: Comparison, unit: differences.Unit) -> dict[str, object]:
    sign = 1 if unit.higher_is_better and not unit.percent else -1  # as the metric: a lower perplexity is below zero
    value, low, high = (None if end is None else sign * end for end in (entry.difference, entry.low, entry.high))
    low, high = (low, high) if sign > 0 else (high, low)
    return {
        "arm": entry.arm,
        "difference": value,
        "low": low,
        "high": high,
        "outcome": entry.outcome,
        "words": differences.in_parts(entry, unit)[0],
        "short": differences.in_short(entry, unit),
    }


def _probes(results: Results) -> list[dict[str, object]]:
    arms = [arm.name for arm in results.arms]
    return [
        {
            "name": name,
            "x": probe.x,
            "x_kind": probe.x_kind,
            "value": probe.value,
            "higher_is_better": probe.higher_is_better,
            "log_value": bool(probe.log),
            "panels": [
                {
                    "group": panel.group,
                    "xs": panel.xs,
                    "log_x": probe.x_kind == "number" and spans_octaves(panel.xs),
                    "points": {arm: [asdict(point) for point in points] for arm, points in panel.points.items()},
                }
                for panel in probe_panels(probe, arms)
            ],
        }
        for name, probe in drawn_probes(results)
    ]


def drawn_probes(results: Results) -> Sequence[tuple[str, ProbeResult]]:
    """Return the probes, by name, in which at least one arm has a value."""
    return [(name, probe) for name, probe in results.probes.items() if any(row.value is not None for row in probe.rows)]


def curve_label(results: Results) -> str:
    """Return the quantity of `learning_curves`: perplexity where it is the headline metric, else the loss."""
    return "Validation perplexity" if in_perplexity(results) else f"Validation loss ({loss_unit(results)})"


def learning_curves(results: Results) -> dict[str, list[dict[str, float | int | None]]]:
    """Return per arm the points ``{"step", "mean", "std", "n"}`` in order of steps; std is None for a single seed."""
    exponential = in_perplexity(results)
    seen: dict[str, dict[int, list[float]]] = {}
    for row in results.rows:
        for step, loss in row.curve:
            if loss is not None and not (exponential and loss > LARGEST_LOSS):
                value = math.exp(loss) if exponential else float(loss)
                seen.setdefault(row.arm, {}).setdefault(int(step), []).append(value)
    return {
        arm: [{"step": step, **mean_and_spread(values)} for step, values in sorted(points.items())]
        for arm, points in seen.items()
    }


def target_lines(results: Results) -> list[tuple[float, str]]:
    """Return the target losses (median over the arms) in the unit of the curves, each with its baseline."""
    found: dict[str, list[float]] = {}
    for entry in results.steps_to_loss:
        if entry.target is not None and entry.target < LARGEST_LOSS:
            found.setdefault(entry.baseline, []).append(float(entry.target))
    return [(curve_value(results, median(targets)), baseline) for baseline, targets in found.items()]


def curve_value(results: Results, loss: float) -> float:
    """Return a validation loss in the unit of the curves."""
    return math.exp(loss) if in_perplexity(results) else loss


def in_perplexity(results: Results) -> bool:
    """Tell whether the curves show perplexity and not the loss."""
    return quality_of(results).key == "perplexity"


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
    """Empty if the probe has no groups."""
    xs: tuple[Place, ...]
    """Numbers in order, or labels in order of appearance."""
    points: Mapping[str, Sequence[ProbePoint]]


def probe_panels(probe: ProbeResult, arms: Sequence[str]) -> list[ProbePanel]:
    """Return the panels of one entry of results["probes"]."""
    groups: dict[str, dict[tuple[str, Place], list[float]]] = {}
    for row in probe.rows:
        if row.value is not None:
            groups.setdefault(row.group or "", {}).setdefault((row.arm, row.x), []).append(float(row.value))
    panels: list[ProbePanel] = []
    for group, seen in groups.items():
        xs = list(dict.fromkeys(x for _, x in seen))
        if probe.x_kind == "number":
            xs = [*sorted(x for x in xs if not isinstance(x, str)), *(x for x in xs if isinstance(x, str))]
        found: dict[str, list[ProbePoint]] = {}
        for arm, x in product(arms, xs):
            if values := seen.get((arm, x)):
                std = stdev(values) if len(values) > 1 else None
                found.setdefault(arm, []).append(ProbePoint(x=x, mean=fmean(values), std=std, n=len(values)))
        panels.append(ProbePanel(group=group, xs=tuple(xs), points=found))
    return panels


def spans_octaves(xs: Sequence[Place]) -> bool:
    """Tell whether numbers suit a logarithmic axis: all above zero, and the largest at least 4 times the smallest."""
    numbers = [x for x in xs if isinstance(x, int | float)]
    return len(numbers) > 2 and min(numbers) > 0 and max(numbers) >= 4 * min(numbers)


def probe_table(panel: ProbePanel) -> list[tuple[str, list[str]]]:
    """Return per arm the cells of a panel, one for each x."""
    rows: list[tuple[str, list[str]]] = []
    for arm, points in panel.points.items():
        aggregates = {one.x: Aggregate(mean=one.mean, std=one.std, n=one.n) for one in points}
        rows.append((arm, [with_spread(aggregates.get(x)) for x in panel.xs]))
    return rows


COLOURS = ("#0c8be0", "#8a2c0a", "#11785b", "#e8359f", "#a18e17", "#163f85", "#0f0f0f", "#7417e6")
"""The palette of page/page.css, any two apart also for readers with protanopia or deuteranopia."""

DASHES = ("-", "--", ":")
MARKERS = "os^Dv*PX"
"""Matplotlib's names of the page's eight shapes (page/page.js); an arm that shares its colour has the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmStyle:
    """Indices into `COLOURS`, `DASHES` and `MARKERS`."""

    colour: int
    dash: int
    marker: int


def arm_styles(results: Results) -> dict[str, ArmStyle]:
    """Return the style of each arm by name: the place in the order of the recipe decides."""
    return {
        arm.name: ArmStyle(
            colour=index % len(COLOURS),
            dash=index // len(COLOURS) % len(DASHES),
            marker=(index + index // len(COLOURS)) % len(MARKERS),
        )
        for index, arm in enumerate(results.arms)
    }
