"""Learning curves over seeds, as the report and the figure files draw them."""

import math
from statistics import median

from wordorder.comparison.quality import loss_unit, quality_of
from wordorder.comparison.results_file import Results
from wordorder.comparison.statistics.summary import mean_and_spread

LARGEST = 700.0
"""Largest loss that is drawn; exp of a larger one would overflow."""


def curve_label(results: Results) -> str:
    """Return the quantity of `learning_curves`: perplexity where it is the headline metric, else the loss."""
    if in_perplexity(results):
        return "Validation perplexity"
    return f"Validation loss ({loss_unit(results)})"


def learning_curves(results: Results) -> dict[str, list[dict[str, float | int | None]]]:
    """Return per arm the points ``{"step", "mean", "std", "n"}`` in order of steps; std is None for a single seed."""
    exponential = in_perplexity(results)
    seen: dict[str, dict[int, list[float]]] = {}
    for row in results.rows:
        for step, loss in row.curve:
            if loss is not None and not (exponential and loss > LARGEST):
                value = math.exp(loss) if exponential else float(loss)
                seen.setdefault(row.arm, {}).setdefault(int(step), []).append(value)
    return {
        arm: [{"step": step, **mean_and_spread(values)} for step, values in sorted(points.items())]
        for arm, points in seen.items()
    }


def target_lines(results: Results) -> list[tuple[float, str]]:
    """Return the target losses of the arms, in the unit of the curves, each with the arm whose lowest loss it is.

    Per baseline the median over the arms: arms that share other seeds with it have slightly other targets.
    """
    found: dict[str, list[float]] = {}
    for entry in results.steps_to_loss:
        if entry.target is not None and entry.target < LARGEST:
            found.setdefault(entry.baseline, []).append(float(entry.target))
    return [(curve_value(results, median(targets)), baseline) for baseline, targets in found.items()]


def curve_value(results: Results, loss: float) -> float:
    """Return a validation loss in the unit of the curves."""
    return math.exp(loss) if in_perplexity(results) else loss


def in_perplexity(results: Results) -> bool:
    """Tell whether the curves show perplexity and not the loss."""
    return quality_of(results).key == "perplexity"
