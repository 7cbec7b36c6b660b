"""The figures of `wordorder inspect`, as PNG files in memory."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wordorder.errors import MissingExtra
from wordorder.inspection.findings import Inspection, MapFindings, floats
from wordorder.inspection.language_model import TOLERANCE, LanguageModelInspection

COLOURS = ("#0b6fb8", "#c8501b", "#24292e", "#0a8a6a", "#a8458f")
"""Colours of the maps, in the order of the maps."""


@dataclass(frozen=True)
class Drawing:
    """A PNG file, with what a page shows beside it, and what a reader who cannot see it should know."""

    png: bytes
    title: str
    caption: str
    alt: str


def draw(inspection: Inspection) -> dict[str, Drawing]:
    """Draw every figure that an inspection has, by file name; none where there is nothing to draw.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    drawings: dict[str, Drawing] = {}
    for name, found in inspection.maps.items():
        drawings[f"map-{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-')}.png"] = _map(name, found)
    if inspection.maps:
        drawings["profiles.png"] = _profiles(inspection.maps)
        drawings["toeplitz.png"] = _toeplitz(inspection.maps)
    return drawings


def new_figure(width: float, height: float) -> Any:  # matplotlib's own types are partly unknown to a strict reader
    try:
        # Figure rather than pyplot: no global state, no display needed
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "train") from error
    return Figure(figsize=(width, height), layout="constrained")


def log_scale(axes: Any) -> None:
    """Make the vertical axis logarithmic, with numbers as a table has them: 50 and not 5 times ten to the first."""
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 4, 5, 7)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")


def png_of(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    return file.getvalue()


def _map(name: str, found: MapFindings) -> Drawing:
    values, skip = found.map.values_HNN, found.map.skip_first
    heads, length = values.shape[0], values.shape[-1]
    figure, grid = _grid_of_heads(heads, (2.5, 1.0), (2.65, 0.3))
    limit, image = colour_limit([found.map.counted_HNN]), None
    for head, axes in enumerate(grid.flat[:heads]):
        shown, ticks, labels = _with_strips(values[head]) if skip else (values[head], *_plain_ticks(length))
        image = axes.imshow(shown.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        axes.set_xticks(ticks, labels, fontsize="small")
        axes.set_yticks(ticks, labels, fontsize="small")
        axes.set_title(f"head {head + 1}, rms {found.toeplitz.rms_H[head]:.2g}", fontsize="small")
    figure.supxlabel("Key position")
    figure.supylabel("Query position")
    figure.colorbar(image, ax=grid, label="Logits", extend="both", shrink=0.9)
    kind = name.partition(" (")[0].split(" ")[-1]  # without the encoding before it and the layers behind it
    strips = ""
    if skip:
        reset = ", before the reset that takes their place in the sum" if kind == "relative" else ""
        strips = f" The strips above and to the left are the row and column of [CLS], drawn wider than they are{reset}."
    return Drawing(
        png_of(figure),
        f"Map: {name}",
        f"{_WHAT.get(kind, _OTHER)}, per head, query position by key position.{strips}"
        " The colour range holds 99.5 % of the numbers. Rms: what softmax sees, each row's mean taken off.",
        f"Heat maps of the {name} term for {heads} heads and {length} positions.",
    )


_OTHER = "One part of what the encoding adds to the scores"  # of an encoding of the reader's own
_WHAT = {
    "absolute": "What the encoding adds to the scores from the two positions",
    "relative": "What the encoding adds to the scores from how far apart the two positions are",
    "sum": "What the encoding adds to the scores in all",
}


def _with_strips(values_NN: Tensor) -> tuple[Tensor, list[float], list[str]]:
    length = len(values_NN)
    wide, gap = max(1, round(length / 24)), max(1, round(length / 60))
    place = [0] * wide + [-1] * gap + list(range(1, length))
    index = torch.tensor([max(0, where) for where in place])
    nowhere = torch.tensor([where < 0 for where in place])
    shown = values_NN[index][:, index].masked_fill(nowhere[:, None] | nowhere, torch.nan)
    positions = [int(label) for label in _plain_ticks(length)[1] if label != "0"]
    return shown, [(wide - 1) / 2, *(p + wide + gap - 1.0 for p in positions)], ["CLS", *map(str, positions)]


def _plain_ticks(length: int) -> tuple[list[float], list[str]]:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if length / step <= 5 or step == 500)
    return [float(p) for p in range(0, length, step)], [str(p) for p in range(0, length, step)]


def _grid_of_heads(heads: int, width: tuple[float, float], height: tuple[float, float]) -> tuple[Any, Any]:
    """Make a figure with axes for each head, four in a row; sizes in inches are so much for each, and so much more."""
    columns = min(heads, 4)
    rows = -(-heads // columns)
    figure = new_figure(width[0] * columns + width[1], height[0] * rows + height[1])
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[heads:]:
        axes.set_visible(False)
    return figure, grid


def _profiles(maps: Mapping[str, MapFindings]) -> Drawing:
    heads = len(next(iter(maps.values())).map.values_HNN)
    figure, grid = _grid_of_heads(heads, (2.7, 0.4), (2.2, 0.8))
    farthest = 1
    for head, axes in enumerate(grid.flat[:heads]):
        for colour, name, found in _coloured(maps, maps):
            profile = found.profile
            curves = (profile.distances_W, profile.mean_HW[head], profile.spread_HW[head])
            distance, mean, spread = (curve.numpy() for curve in curves)
            axes.plot(distance, mean, color=colour, linewidth=1.2, label=name if head == 0 else None)
            axes.fill_between(distance, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
            farthest = max(farthest, int(distance.max()))
        axes.axvline(0, color="#8b939b", linewidth=0.6, zorder=0)
        axes.set_title(f"head {head + 1}", fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    if farthest > 32:  # the near distances are where most happens
        grid[0, 0].set_xscale("symlog", linthresh=8)
        ticks = (8, 32) if farthest < 128 else (8, 64, 512)
        ticks = [tick for tick in ticks if tick <= farthest]
        grid[0, 0].set_xticks([*(-tick for tick in reversed(ticks)), 0, *ticks])
        grid[0, 0].get_xaxis().set_major_formatter("{x:.0f}")
        for axes in grid.flat:
            axes.minorticks_off()
    figure.supxlabel("Distance (key position minus query position)", fontsize="medium")
    figure.supylabel("Logits", fontsize="medium")
    figure.legend(loc="outside upper center", ncols=len(maps), frameon=False, fontsize="small")
    return Drawing(
        png_of(figure),
        "By distance",
        "Mean of each diagonal, after the constants that softmax cancels are taken off the rows; the band is the"
        " standard deviation along the diagonal, 0 where distance alone decides. The level means nothing, the shape"
        " does. Far distances have few pairs.",
        f"Line charts of the mean by distance, one per head, with a band of one standard deviation: {', '.join(maps)}.",
    )


def _toeplitz(all_maps: Mapping[str, MapFindings]) -> Drawing:
    # a relative term's bars are full by construction: they stand only where there is nothing else to show
    maps = {name: found for name, found in all_maps.items() if not found.by_distance_alone} or all_maps
    heads = len(next(iter(maps.values())).map.values_HNN)
    figure, axes = _axes(max(4.5, 0.36 * heads * len(maps) + 2.0), 3.4)
    width = 0.8 / len(maps)
    for index, (colour, name, found) in enumerate(_coloured(maps, all_maps)):
        shares = found.toeplitz.share_H.nan_to_num(0.0).numpy()
        where = [head + (index - (len(maps) - 1) / 2) * width for head in range(heads)]
        axes.bar(where, shares, 0.92 * width, color=colour, label=f"{name} (all heads {found.toeplitz.share:.2f})")
        axes.bar(where, 1 - shares, 0.92 * width, bottom=shares, color=colour, alpha=0.18)
    chance = next(iter(maps.values())).toeplitz.chance
    axes.axhline(chance, color="#24292e", linewidth=0.9, linestyle=":", label=f"random numbers ({chance:.3f})")
    axes.set_xticks(range(heads), [f"head {head + 1}" for head in range(heads)], fontsize="small")
    axes.set(ylabel="Share of energy", ylim=(0, 1))
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize="small")
    said = "; ".join(
        f"{name}: " + ", ".join(f"{share:.2f}" for share in floats(found.toeplitz.share_H))
        for name, found in maps.items()
    )
    return Drawing(
        png_of(figure),
        "How much depends on distance alone",
        "Full colour: the share of the best Toeplitz part in the energy (sum of squares) of the map, up to one constant"
        " per row, which softmax cancels. Pale: the rest, which no relative term can say.",
        f"Bars of the Toeplitz share per head. {said}.",
    )


def _coloured(
    maps: Mapping[str, MapFindings], all_maps: Mapping[str, MapFindings]
) -> Iterator[tuple[str, str, MapFindings]]:
    for name, found in maps.items():
        yield COLOURS[list(all_maps).index(name) % len(COLOURS)], name, found


def colour_limit(tensors: Iterable[Tensor]) -> float:
    """Return a colour range that holds 99.5 % of the numbers; 1 where they are all 0."""
    largest = torch.cat([tensor.double().abs().flatten() for tensor in tensors]).sort().values
    return float(largest[int(0.995 * (len(largest) - 1))]) or 1.0


def draw_reading(inspection: LanguageModelInspection) -> dict[str, Drawing]:
    """Draw attention by distance, loss by context, and for look-ahead memory alpha by age; return them by file name.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    drawings = {"attention.png": _attention(inspection), "context.png": _context(inspection)}
    if inspection.habits.alpha_LHA is not None:
        drawings["alpha.png"] = _alpha(inspection, inspection.habits.alpha_LHA)
    return drawings


def _attention(inspection: LanguageModelInspection) -> Drawing:
    habits = inspection.habits
    figure, axes = _axes()
    for layer, line in enumerate(habits.weights_LHO.mean(1).unbind()):
        axes.plot(range(len(line)), floats(line), color=_shade(layer, len(habits.weights_LHO)), linewidth=0.9)
    axes.plot(range(len(habits.mean_O)), floats(habits.mean_O), color="#24292e", linewidth=2.0, label="all layers")
    axes.set_yscale("log")
    if len(habits.mean_O) > 32:
        axes.set_xscale("symlog", linthresh=8)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set(xlabel="Distance to the left (tokens)", ylabel="Mean weight")
    if habits.slots:
        axes.axvline(habits.length, color="#8b939b", linewidth=0.8, linestyle=":", label="one segment")
    axes.legend(frameon=False, fontsize="small")
    near = ", ".join(f"{value:.3g}" for value in floats(habits.mean_O)[:4])
    where = (
        f"segments of {habits.length} beside {habits.slots} slots" if habits.slots else f"windows of {habits.length}"
    )
    return Drawing(
        png_of(figure),
        "Attention by distance",
        "Mean weight that a token gives to the one so many tokens to its left (0: itself), over heads and those of"
        f" {habits.tokens} tokens that see one there, in {where}. Thin lines are layers, from the first (pale)"
        " to the last (dark).",
        f"Line chart of the mean attention weight by distance; at 0, 1, 2, 3 tokens: {near}.",
    )


def _context(inspection: LanguageModelInspection) -> Drawing:
    found = inspection.context
    figure, axes = _axes()
    low, high = ([x + sign * e for x, e in zip(found.losses, found.errors, strict=True)] for sign in (-1, 1))
    axes.plot(found.contexts, found.losses, color="#0b6fb8", marker="o", markersize=4)
    axes.fill_between(found.contexts, low, high, color="#0b6fb8", alpha=0.15, linewidth=0)
    effective = found.effective()
    axes.axvline(effective, color="#c8501b", linewidth=0.9, linestyle=":", label=f"effective context: {effective}")
    axes.set_xscale("symlog", linthresh=found.block)
    axes.set_xticks(found.contexts, [str(context) for context in found.contexts], fontsize="small", rotation=45)
    axes.minorticks_off()
    axes.set(xlabel=f"Tokens read before a block of {found.block}", ylabel="Loss (nats per token)")
    axes.legend(frameon=False, fontsize="small")
    said = ", ".join(f"{loss:.3f} with {n}" for n, loss in zip(found.contexts, found.losses, strict=True))
    return Drawing(
        png_of(figure),
        "Loss by context",
        f"The loss on the same {found.tokens} tokens, read after so many tokens of their text. The band is the standard"
        " error of the difference from the last point, over blocks. From the dotted line on perplexity stays"
        f" within {TOLERANCE:.0%} of the last point's.",
        f"Line chart of the loss by context: {said}.",
    )


def _alpha(inspection: LanguageModelInspection, alpha_LHA: Tensor) -> Drawing:
    figure, axes = _axes()
    layers = alpha_LHA.mean(1)
    ages = range(1, layers.shape[1] + 1)
    for layer, line in enumerate(layers.unbind()):
        axes.plot(ages, floats(line), color=_shade(layer, len(layers)), label=f"layer {layer + 1}")
    axes.set(xlabel="Age (tokens before the segment)", ylabel="Alpha", ylim=(0, 1.02))
    if len(layers) <= 8:
        axes.legend(frameon=False, fontsize="small")
    ends = floats(layers.mean(0)[[0, -1]])
    return Drawing(
        png_of(figure),
        "What slots keep, by age",
        "Alpha: the weight of what a slot of the look-ahead memory knew against what it finds in its window when the"
        f" segment of {inspection.habits.length} tokens is read, mean over heads and segments, by the slot's distance"
        " from the segment. The last layer's slots are not refreshed.",
        f"Line chart of alpha by age, one line per layer; mean {ends[0]:.2f} at the youngest slot, {ends[1]:.2f} at the"
        " oldest.",
    )


def _axes(width: float = 6.4, height: float = 3.8) -> tuple[Any, Any]:
    figure = new_figure(width, height)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _shade(layer: int, layers: int) -> tuple[float, float, float]:
    share = 1.0 if layers == 1 else layer / (layers - 1)
    return (0.68 - 0.62 * share, 0.80 - 0.48 * share, 0.93 - 0.37 * share)
