"""Draw the figure of one probe: curves over numbers, dots beside labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wordorder.comparison.report.probe_points import ProbePanel, probe_panels, spans_octaves
from wordorder.comparison.results_file import ProbeResult, Results
from wordorder.comparison.statistics.summary import SEEDS_FOR_A_SPREAD
from wordorder.inspection.figures import log_scale

_Style = Callable[[str], Mapping[str, Any]]


def draw_probe(probe: ProbeResult, results: Results, new_figure: Callable[[float, float], Any], style: _Style) -> Any:
    """Return a figure with one panel for each group of the probe, or a single one.

    Args:
        probe: an entry of results["probes"] with at least one value.
        results: the content of a results.json: its arms are drawn in their order.
        new_figure: from width and height in inches to an empty matplotlib figure.
        style: from an arm's name to its color, marker, linestyle and label.
    """
    panels = probe_panels(probe, [arm.name for arm in results.arms])
    numbers = probe.x_kind == "number"
    height = 4.0 if numbers else 1.2 + 0.16 * max(len(panel.xs) * (len(panel.points) + 1) for panel in panels)
    figure = new_figure(2.4 + 4.8 * len(panels), height)
    areas = figure.subplots(1, len(panels), sharey=numbers, squeeze=False)[0]
    for panel, area in zip(panels, areas, strict=True):
        (_curves if numbers else _dots)(probe, panel, area, style)
        area.set_title(panel.group, fontsize="medium")
        area.spines[["top", "right"]].set_visible(False)
    handles: dict[str, Any] = {}
    for area in areas:
        handles |= {label: handle for handle, label in zip(*area.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize="small")
    figure.suptitle(probe.title.replace("$", r"\$"), fontsize="medium")
    return figure


def _curves(probe: ProbeResult, panel: ProbePanel, area: Any, style: _Style) -> None:
    for arm, points in panel.points.items():
        xs, means = [point.x for point in points], [point.mean for point in points]
        own = style(arm)
        area.plot(xs, means, linewidth=1.6, markersize=5, **own)
        if all(point.n >= SEEDS_FOR_A_SPREAD for point in points):
            low, high = ([p.mean + sign * (p.std or 0.0) for p in points] for sign in (-1, 1))
            area.fill_between(xs, low, high, color=own["color"], alpha=0.15, linewidth=0)
    if spans_octaves(panel.xs):
        area.set_xscale("log", base=2)
        area.set_xticks(panel.xs, [f"{x:g}" for x in panel.xs])
    if probe.log and all(p.mean > 0 for points in panel.points.values() for p in points):
        log_scale(area)
    area.set(xlabel=probe.x, ylabel=probe.value)


def _dots(probe: ProbeResult, panel: ProbePanel, area: Any, style: _Style) -> None:
    tall = len(panel.points) + 1
    for lane, (arm, points) in enumerate(panel.points.items()):
        places = [panel.xs.index(point.x) * tall + lane for point in points]
        error = [point.std or 0.0 if point.n >= SEEDS_FOR_A_SPREAD else 0.0 for point in points]
        own = {**style(arm), "linestyle": "none"}
        area.errorbar([point.mean for point in points], places, xerr=error, markersize=5, **own)
    for place in range(1, len(panel.xs)):
        area.axhline(place * tall - 1, color="#dcdfe2", linewidth=0.8, zorder=0)
    area.set_yticks(
        [place * tall + (tall - 2) / 2 for place in range(len(panel.xs))],
        [str(x).replace("$", r"\$") for x in panel.xs],
    )
    area.set_ylim(len(panel.xs) * tall - 1, -1)
    area.set(xlabel=probe.value)
