"""The figures of a language model that was watched while it read."""

from typing import Any

from torch import Tensor

from wordorder.inspection.figures import Drawing, new_figure, png_of
from wordorder.inspection.findings import floats
from wordorder.inspection.language_model import TOLERANCE, LanguageModelInspection


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
    effective = found.effective(TOLERANCE)
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


def _axes() -> tuple[Any, Any]:
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _shade(layer: int, layers: int) -> tuple[float, float, float]:
    """Return the colour of a layer, from a pale to a dark blue."""
    share = 1.0 if layers == 1 else layer / (layers - 1)
    return (0.68 - 0.62 * share, 0.80 - 0.48 * share, 0.93 - 0.37 * share)
