"""The report's figures as files, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wordorder.comparison.curves import curve_label, learning_curves
from wordorder.comparison.quality import quality_of
from wordorder.comparison.statistics import SEEDS_FOR_A_SPREAD, centre, spread, statistic_of
from wordorder.comparison.table import columns, lines
from wordorder.inspection.figures import new_figure

COSTS = {"parameters": "Parameters", "flops_per_token": "FLOP per token (forward + backward)"}
"""What quality is drawn against: key of a column of the table -> label of the axis."""

COLOURS = ("#0b6fb8", "#c8501b", "#0a8a6a", "#a8458f", "#8c6d00", "#2789b8", "#24292e", "#5a4fcf")
"""The page's palette on white (page/page.css)."""


def write_figures(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write learning_curves.png and .svg, quality_against_cost.png and .svg, and position_correlation_<arm>.png.

    Curves need arms that were evaluated more than once, costs two arms with results, maps an arm that has some.

    Args:
        results: the content of a results.json; nothing else is read.
        folder: where the files go; made if needed.
    Returns:
        The files written.
    Raises:
        MissingExtra: matplotlib is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = _curves(results, folder) if any(len(row["curve"]) > 1 for row in results["rows"]) else []
    drawn += _costs(results, folder)
    return drawn + [_maps(arm, parts, folder) for arm, parts in results["correlations"].items()]


def _plain(name: str) -> str:
    return name.replace("$", r"\$")  # matplotlib reads what stands between dollars as mathematics


def _curves(results: Mapping[str, Any], folder: Path) -> list[Path]:
    figure = new_figure(7.2, 4.2)
    axes = figure.subplots()
    curves = learning_curves(results)
    for index, arm in enumerate(results["arms"]):
        points = [point for point in curves.get(arm["name"], []) if point["mean"] is not None]
        if not points:
            continue
        steps, means = [point["step"] for point in points], [float(point["mean"] or 0) for point in points]
        colour, dash = COLOURS[index % len(COLOURS)], ("-", "--", ":")[index // len(COLOURS) % 3]
        axes.plot(steps, means, color=colour, linestyle=dash, linewidth=1.6, label=_plain(arm["name"]))
        if all(int(point["n"] or 0) >= SEEDS_FOR_A_SPREAD for point in points):
            around = [float(point["std"] or 0) for point in points]
            low, high = ([m + sign * s for m, s in zip(means, around, strict=True)] for sign in (-1, 1))
            axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="Step", ylabel=curve_label(results))
    if curve_label(results).endswith("perplexity"):
        axes.set_yscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    paths = [folder / f"learning_curves.{ending}" for ending in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=200)
    return paths


def draw_costs(results: Mapping[str, Any], axes: Mapping[str, Any], style: Callable[[str], Mapping[str, Any]]) -> None:
    """Draw each arm's headline metric, with its spread, against what the arm costs.

    Args:
        results: the content of a results.json.
        axes: matplotlib axes by key of `COSTS`; each is drawn.
        style: from an arm's name to what matplotlib's errorbar takes: color, marker, label ...
    """
    quality, statistic = quality_of(results), statistic_of(results)
    costs = {column.key: column.value for column in columns(results)}
    for key, area in axes.items():
        drawn: list[float] = []
        for entry, arm in lines(results):
            middle, cost = centre(entry.get(quality.metric), statistic), costs[key](entry, arm)
            if middle is None or cost is None:
                continue
            low, high = spread(entry[quality.metric], statistic) or (middle, middle)
            error = [[middle - low], [high - middle]]
            area.errorbar([cost], [middle], yerr=error, linestyle="none", markersize=5, **style(entry["arm"]))
            drawn.append(cost)
        if drawn and min(drawn) > 0 and max(drawn) > 10 * min(drawn):
            area.set_xscale("log")
        area.set(xlabel=COSTS[key], ylabel=columns(results)[0].title)
        area.spines[["top", "right"]].set_visible(False)


def _costs(results: Mapping[str, Any], folder: Path) -> list[Path]:
    names = [entry["arm"] for entry, arm in lines(results) if len(entry) > 1 and arm["parameters"]]
    if len(names) < 2:
        return []
    figure = new_figure(9.6, 4.2)
    parts = figure.subplots(1, len(COSTS), sharey=True)
    order = {arm["name"]: index for index, arm in enumerate(results["arms"])}

    def style(name: str) -> dict[str, Any]:
        index = order[name]
        marker = "os^Dv"[index // len(COLOURS) % 5]
        return {"color": COLOURS[index % len(COLOURS)], "marker": marker, "label": _plain(name)}

    draw_costs(results, dict(zip(COSTS, parts, strict=True)), style)
    handles, labels = parts[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize="x-small")
    paths = [folder / f"quality_against_cost.{ending}" for ending in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=160)
    return paths


def _maps(arm: str, parts: Mapping[str, Any], folder: Path) -> Path:
    heads = len(next(iter(parts.values())))
    figure = new_figure(1.9 * heads + 1.2, 2.0 * len(parts) + 0.4)
    grid = figure.subplots(len(parts), heads, squeeze=False, sharex=True, sharey=True)
    # [CLS] (row and column 0) holds resets that would wash out everything else
    inner = [abs(v) for own in parts.values() for head in own for row in head[1:] for v in row[1:]]
    limit, image = max(inner, default=1.0) or 1.0, None
    for line, (part, own) in zip(grid, parts.items(), strict=True):
        for head, (axes, values) in enumerate(zip(line, own, strict=True)):
            image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
            axes.set_title(f"{part}, head {head + 1}", fontsize="small")
    figure.supxlabel("Key position")
    figure.supylabel("Query position")
    figure.colorbar(image, ax=grid, label="Position correlation (added to the scores)", extend="both")
    path = folder / f"position_correlation_{re.sub(r'[^A-Za-z0-9._+-]', '_', arm)}.png"
    figure.savefig(path, dpi=160)
    return path
