"""Write the report's figures as files, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from wordorder.comparison.costs import COSTS, Cost, costs_known, front_of, points_of
from wordorder.comparison.report import view
from wordorder.comparison.report.differences import difference_title, in_short, references, unit_of
from wordorder.comparison.report.table import columns
from wordorder.comparison.results_file import ProbeResult, Results
from wordorder.comparison.statistics.summary import SEEDS_FOR_A_SPREAD, quality_of, spread
from wordorder.errors import BadInput
from wordorder.files import make_folder, write_files
from wordorder.inspection.figures import log_scale, new_figure

__all__ = ["COSTS", "draw_costs", "write_figures"]

FOLDER = "figures"

Style = Callable[[str], Mapping[str, Any]]
"""Function from an arm's name to its color, marker, linestyle and label for matplotlib."""


def figure_files(results: Results) -> dict[str, tuple[str, ...]]:
    """Return the title of each figure -> the names of its files, in the order of the report."""
    stems: dict[str, str] = {}
    if results.comparisons:
        stems["Differences"] = "differences"
    if any(len(row.curve) > 1 for row in results.rows):
        stems["Learning curves"] = "learning_curves"
    costly = {arm.name for arm in results.arms if arm.parameters}
    if sum(entry.arm in costly for entry in results.summary if entry.columns) > 1:
        stems["Quality against cost"] = "quality_against_cost"
    stems |= {probe.title: _probe_stem(name) for name, probe in view.drawn_probes(results)}
    return {title: (f"{stem}.png", f"{stem}.svg") for title, stem in stems.items()}


def _probe_stem(name: str) -> str:
    return "probe_" + re.sub(r"[^A-Za-z0-9._+-]", "_", name)


def write_figures(results: Results, folder: Path) -> list[Path]:
    """Write the figures that `figure_files` names: PNG and SVG each; a link in the place of a file is replaced.

    Raises:
        BadInput: the folder is a link that leads out of the folder it lies in.
    """
    if fault := link_fault(folder):
        raise BadInput(fault)
    make_folder(folder)
    names = {name for own in figure_files(results).values() for name in own}
    drawers: dict[str, Callable[[Results, Style], Any]] = {
        "differences": _differences,
        "learning_curves": _curves,
        "quality_against_cost": _costs,
        **{_probe_stem(name): partial(_probe, probe) for name, probe in results.probes.items()},
    }
    style, written = _drawn(view.arm_styles(results)).__getitem__, dict[str, bytes]()
    for stem, draw in drawers.items():
        if f"{stem}.png" in names:
            figure = draw(results, style)
            for ending in ("png", "svg"):
                file = BytesIO()
                figure.savefig(file, format=ending, dpi=200)
                written[f"{stem}.{ending}"] = file.getvalue()
    write_files(folder, written)
    return [folder / name for name in written]


def link_fault(folder: Path) -> str | None:
    """Return the fault of a folder of figures that is a link to somewhere else, or None."""
    target, parent = folder.resolve(), folder.parent.resolve()
    if not folder.is_symlink() or target.is_relative_to(parent):
        return None
    return (
        f"--output-dir: {str(folder)!r} is a link to {str(target)!r}, where figures would be written; remove the link, "
        "or name another folder by --output-dir FOLDER"
    )


def _plain(name: str) -> str:
    return name.replace("$", r"\$")  # matplotlib reads what stands between dollars as mathematics


def _drawn(styles: Mapping[str, view.ArmStyle]) -> dict[str, Mapping[str, Any]]:
    return {
        name: {
            "color": view.COLOURS[own.colour],
            "marker": view.MARKERS[own.marker],
            "linestyle": view.DASHES[own.dash],
            "label": _plain(name),
        }
        for name, own in styles.items()
    }


def _differences(results: Results, style: Style) -> Any:
    baseline, unit = references(results)[0], unit_of(results)
    entries = view.by_effect(results, baseline)
    figure = new_figure(7.2, 1.3 + 0.32 * len(entries))
    axes = figure.subplots()
    for place, entry in enumerate(entries):
        own = style(entry.arm)
        if entry.difference is not None:
            ends = (entry.difference if end is None else end for end in (entry.low, entry.high))
            middle, (low, high) = unit.change(entry.difference), sorted(map(unit.change, ends))
            significant = entry.outcome in {"better", "worse"}
            axes.errorbar(
                [middle], [place], xerr=[[middle - low], [high - middle]], color=own["color"],
                marker=own["marker"], markerfacecolor=own["color"] if significant else "white", linestyle="none",
                markersize=6, capsize=3,
            )  # fmt: skip
        words = _plain(in_short(entry, unit))
        axes.annotate(words, (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize="small")
    names = [style(entry.arm)["label"] for entry in entries]
    axes.axvline(0, color="#8b939b", linewidth=1, zorder=0)
    axes.set_yticks(range(len(entries)), names)
    axes.set_ylim(len(entries) - 0.4, -0.6)
    side = "right" if unit.higher_is_better else "left"
    axes.set_xlabel(f"{difference_title(results)} from {style(baseline)['label']}; {side} is better")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def _curves(results: Results, style: Style) -> Any:
    figure = new_figure(8.4, 4.2)
    axes, curves = figure.subplots(), view.learning_curves(results)
    for arm in results.arms:
        points = [point for point in curves.get(arm.name, []) if point["mean"] is not None]
        if points:
            steps, means = [point["step"] for point in points], [float(point["mean"] or 0) for point in points]
            own = {"markersize": 4, "markevery": max(1, len(points) // 6), **style(arm.name)}
            around = [float(point["std"] or 0) for point in points]
            fewest = min(int(point["n"] or 0) for point in points)
            _line(axes, steps, means, around if fewest >= SEEDS_FOR_A_SPREAD else None, own)
    for target, baseline in view.target_lines(results):
        axes.axhline(target, color="#555d66", linewidth=1, linestyle=(0, (2, 3)))
        words, place = f" lowest loss of {_plain(baseline)}", (0, target)
        axes.annotate(
            words, place, xycoords=("axes fraction", "data"), va="bottom", fontsize="x-small", color="#555d66"
        )
    axes.set(xlabel="Training step", ylabel=view.curve_label(results))
    if view.in_perplexity(results):
        log_scale(axes)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    return figure


def _line(area: Any, xs: Sequence[Any], means: Sequence[float], around: Sequence[float] | None, style: Any) -> None:
    area.plot(xs, means, linewidth=1.6, **style)
    if around is not None:
        low, high = ([m + sign * s for m, s in zip(means, around, strict=True)] for sign in (-1, 1))
        area.fill_between(xs, low, high, color=style["color"], alpha=0.15, linewidth=0)


def draw_costs(results: Results, axes: Mapping[str, Any], style: Style) -> None:
    """Draw each arm's headline metric, with its spread, against what the arm costs, and the Pareto front."""
    for cost in COSTS:
        if cost.key in axes:
            _draw_cost(results, cost, axes[cost.key], style)


def _draw_cost(results: Results, cost: Cost, area: Any, style: Style) -> None:
    metric, statistic = quality_of(results).key, results.statistic
    columns_of = {entry.arm: entry.columns[metric] for entry in results.summary if metric in entry.columns}
    known = {
        point.name: (point.cost, point.quality)
        for point in points_of(results, cost)
        if point.cost is not None and point.quality is not None
    }
    ranges = {name: spread(columns_of[name], statistic) or (middle, middle) for name, (_, middle) in known.items()}
    for name, (x, middle) in known.items():
        low, high = ranges[name]
        error = [[middle - low], [high - middle]]
        area.errorbar([x], [middle], yerr=error, markersize=5, **{**style(name), "linestyle": "none"})
    front = front_of(results, cost).on
    if len(front) > 1:
        drawn = "steps-pre" if cost.more_is_better else "steps-post"
        xs, ys = zip(*sorted(known[name] for name in front), strict=True)
        area.plot(xs, ys, drawstyle=drawn, color="#8b939b", linewidth=1, linestyle="--", zorder=0)
    xs = [x for x, _ in known.values()]
    if xs and min(xs) > 0 and max(xs) > 10 * min(xs):
        area.set_xscale("log")
    else:
        area.locator_params(axis="x", nbins=5)
    ends = [end for both in ranges.values() for end in both]
    if ends and min(ends) > 0 and max(ends) > 2.2 * min(ends):  # one arm that learned nothing presses the others flat
        log_scale(area)
    area.set(xlabel=cost.title, ylabel=columns(results)[0].title)
    area.spines[["top", "right"]].set_visible(False)


def _costs(results: Results, style: Style) -> Any:
    known = costs_known(results)
    wide = min(3, len(known))
    tall = -(-len(known) // wide)
    figure = new_figure(1.8 + 3.6 * wide, 0.4 + 3.4 * tall)
    areas = list(figure.subplots(tall, wide, sharey=True, squeeze=False).flat)
    for spare in areas[len(known) :]:
        spare.remove()
    draw_costs(results, {cost.key: area for cost, area in zip(known, areas, strict=False)}, style)
    for place, area in enumerate(areas[: len(known)]):
        if place % wide:
            area.set_ylabel("")
    handles, labels = areas[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize="small")
    words = "Dashed: the Pareto front; no model is both better and cheaper than one on it."
    figure.supxlabel(words, fontsize="x-small", color="#555d66")
    return figure


def _probe(probe: ProbeResult, results: Results, style: Style) -> Any:
    panels = view.probe_panels(probe, [arm.name for arm in results.arms])
    numbers = probe.x_kind == "number"
    height = 4.0 if numbers else 1.2 + 0.16 * max(len(panel.xs) * (len(panel.points) + 1) for panel in panels)
    figure = new_figure(2.4 + 4.8 * len(panels), height)
    areas = figure.subplots(1, len(panels), sharey=numbers, squeeze=False)[0]
    for panel, area in zip(panels, areas, strict=True):
        (_probe_curves if numbers else _probe_dots)(probe, panel, area, style)
        area.set_title(panel.group, fontsize="medium")
        area.spines[["top", "right"]].set_visible(False)
    handles: dict[str, Any] = {}
    for area in areas:
        handles |= {label: handle for handle, label in zip(*area.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize="small")
    figure.suptitle(_plain(probe.title), fontsize="medium")
    return figure


def _probe_curves(probe: ProbeResult, panel: view.ProbePanel, area: Any, style: Style) -> None:
    for arm, points in panel.points.items():
        known = all(point.n >= SEEDS_FOR_A_SPREAD for point in points)
        around = [point.std or 0.0 for point in points] if known else None
        own = {"markersize": 5, **style(arm)}
        _line(area, [point.x for point in points], [point.mean for point in points], around, own)
    if view.spans_octaves(panel.xs):
        area.set_xscale("log", base=2)
        area.set_xticks(panel.xs, [f"{x:g}" for x in panel.xs])
    if probe.log and all(p.mean > 0 for points in panel.points.values() for p in points):
        log_scale(area)
    area.set(xlabel=probe.x, ylabel=probe.value)


def _probe_dots(probe: ProbeResult, panel: view.ProbePanel, area: Any, style: Style) -> None:
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
        [_plain(str(x)) for x in panel.xs],
    )
    area.set_ylim(len(panel.xs) * tall - 1, -1)
    area.set(xlabel=probe.value)
