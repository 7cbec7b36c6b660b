"""Mean and spread over seeds."""

import math
from collections.abc import Iterable, Mapping
from statistics import fmean, stdev
from typing import Any

SEEDS_FOR_A_SPREAD = 3
"""Two numbers have a standard deviation, but nobody should believe it; below three none is shown."""

NOT_A_METRIC = frozenset({"seed", "learning_rate", "steps", "best_step"})


def mean_and_spread(values: Iterable[float]) -> dict[str, float | int | None]:
    """Return ``{"mean", "std", "n"}``; std is the sample standard deviation (n - 1), None for fewer than two values."""
    known = [value for value in values if math.isfinite(value)]
    return {
        "mean": fmean(known) if known else None,
        "std": stdev(known) if len(known) > 1 else None,
        "n": len(known),
    }


def summarise(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per arm, in order of appearance, with mean, spread and count of every numeric column."""
    by_arm: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_arm.setdefault(str(row["arm"]), []).append(row)
    return [{"arm": arm, **_columns(own)} for arm, own in by_arm.items()]


def _columns(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for row in rows for name, value in row.items() if _is_number(value))
    return {
        name: mean_and_spread(float(row[name]) for row in rows if _is_number(row.get(name)))
        for name in names
        if name not in NOT_A_METRIC
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
