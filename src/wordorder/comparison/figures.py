"""The report's figures as files, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wordorder.comparison.curves import curve_label, learning_curves
from wordorder.comparison.statistics import SEEDS_FOR_A_SPREAD
from wordorder.errors import MissingExtra

COLOURS = ("#0b6fb8", "#c8501b", "#0a8a6a", "#a8458f", "#8c6d00", "#2789b8", "#24292e", "#5a4fcf")
"""The page's palette on white (page/page.css)."""


def write_figures(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write learning_curves.png and .svg, and position_correlation_<arm>.png for every arm that has maps.

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
    return drawn + [_maps(arm, parts, folder) for arm, parts in results["correlations"].items()]


def _figure(width: float, height: float) -> Any:  # matplotlib's own types are partly unknown to a strict reader
    try:
        # Figure rather than pyplot: no global state, no display needed
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "train") from error
    return Figure(figsize=(width, height), layout="constrained")


def _plain(name: str) -> str:
    return name.replace("$", r"\$")  # matplotlib reads what stands between dollars as mathematics


def _curves(results: Mapping[str, Any], folder: Path) -> list[Path]:
    figure = _figure(7.2, 4.2)
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
            spread = [float(point["std"] or 0) for point in points]
            low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
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


def _maps(arm: str, parts: Mapping[str, Any], folder: Path) -> Path:
    heads = len(next(iter(parts.values())))
    figure = _figure(1.9 * heads + 1.2, 2.0 * len(parts) + 0.4)
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
