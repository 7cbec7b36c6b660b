"""Learning curves over seeds, as the report and the figure files draw them."""

import math
from collections.abc import Mapping
from typing import Any

from wordorder.comparison.quality import quality_of
from wordorder.comparison.statistics import mean_and_spread


def curve_label(results: Mapping[str, Any]) -> str:
    """Return the name of what `learning_curves` holds: perplexity where it is the headline metric, else the loss."""
    if _in_perplexity(results):
        return "Validation perplexity"
    return f"Validation loss ({'squared error' if results.get('task') == 'regression' else 'nats'})"


def learning_curves(results: Mapping[str, Any]) -> dict[str, list[dict[str, float | int | None]]]:
    """Return per arm the points ``{"step", "mean", "std", "n"}`` in order of steps; std is None for a single seed."""
    exponential = _in_perplexity(results)
    seen: dict[str, dict[int, list[float]]] = {}
    for row in results["rows"]:
        for step, loss in row["curve"]:
            if loss is not None and not (exponential and loss > 700):  # exp would overflow
                value = math.exp(loss) if exponential else float(loss)
                seen.setdefault(row["arm"], {}).setdefault(int(step), []).append(value)
    return {
        arm: [{"step": step, **mean_and_spread(values)} for step, values in sorted(points.items())]
        for arm, points in seen.items()
    }


def _in_perplexity(results: Mapping[str, Any]) -> bool:
    return quality_of(results).metric == "perplexity"
