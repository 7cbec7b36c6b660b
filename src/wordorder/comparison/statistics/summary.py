"""Mean, median and spread over seeds, or over folds."""

import math
from collections.abc import Iterable, Mapping
from statistics import fmean, median, stdev
from typing import Any

SEEDS_FOR_A_SPREAD = 3
"""Smallest number of seeds for which a spread is shown: two numbers have a standard deviation, but nobody should
believe it."""

NOT_A_METRIC = frozenset({"seed", "fold", "learning_rate", "steps", "best_step"})


def mean_and_spread(values: Iterable[float]) -> dict[str, float | int | None]:
    """Return ``{"mean", "std", "n"}``; std is the sample standard deviation (n - 1), None for fewer than two values."""
    known = [value for value in values if math.isfinite(value)]
    return {
        "mean": fmean(known) if known else None,
        "std": stdev(known) if len(known) > 1 else None,
        "n": len(known),
    }


def median_and_range(values: Iterable[float]) -> dict[str, float | None]:
    """Return ``{"median", "low", "high"}``: the median, the lowest and the highest value."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return {"median": None, "low": None, "high": None}
    return {"median": median(known), "low": min(known), "high": max(known)}


def summarise(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per arm, in order of appearance, with mean, median and spreads of every numeric column.

    Over folds where the rows have them: the seeds of one fold are averaged first, because they share its test texts.
    """
    by_arm: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_arm.setdefault(str(row["arm"]), []).append(row)
    return [{"arm": arm, **_columns(own)} for arm, own in by_arm.items()]


Unit = tuple[int | None, int]
"""Fold (None where there are none) and seed of one training."""


def by_run(results: Mapping[str, Any]) -> dict[str, dict[Unit, Mapping[str, Any]]]:
    """Return the rows of a results file by arm, in order of appearance, and by fold and seed."""
    found: dict[str, dict[Unit, Mapping[str, Any]]] = {}
    for row in results["rows"]:
        found.setdefault(str(row["arm"]), {})[row.get("fold"), int(row["seed"])] = row
    return found


def baseline_of(results: Mapping[str, Any]) -> str | None:
    """Return the arm that the others are compared with: the one that the file names, or its first."""
    named = results.get("baseline")
    return str(named) if named else next((str(arm["name"]) for arm in results["arms"]), None)


def compare_section(results: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return [compare] of the recipe that made a results file; empty where it has none."""
    section: Mapping[str, Any] | None = results["recipe"].get("compare")
    return section or {}


def confidence_of(results: Mapping[str, Any]) -> float:
    """Return the confidence of a results file's intervals; its claims are at the level 1 less it."""
    return float(compare_section(results).get("confidence") or 0.95)


def repeats(results: Mapping[str, Any]) -> tuple[str, int]:
    """Return the unit of the spread of a results file, "seed" or "fold", and how many of them are planned."""
    folds = results["planned"].get("folds")
    return ("fold", len(folds)) if folds else ("seed", len(results["planned"]["seeds"]))


def centre(entry: Mapping[str, Any] | None, statistic: str) -> float | None:
    """Return the mean or the median of a summary's column, which stands for an arm; None if nothing is known."""
    return None if entry is None else entry.get(statistic)


def spread(entry: Mapping[str, Any], statistic: str) -> tuple[float, float] | None:
    """Return the range around the centre, or None below three seeds.

    It is mean plus and minus one standard deviation; or, for a median, which a single bad seed does not move, the
    lowest and the highest seed.
    """
    if int(entry["n"]) < SEEDS_FOR_A_SPREAD or entry.get(statistic) is None:
        return None
    if statistic == "median":
        return float(entry["low"]), float(entry["high"])
    std = float(entry["std"] or 0.0)
    return float(entry["mean"]) - std, float(entry["mean"]) + std


def statistic_of(results: Mapping[str, Any]) -> str:
    """Return the statistic that a results file reports: "mean" or "median"."""
    return str(results.get("statistic", "mean"))


def _columns(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for row in rows for name, value in row.items() if _is_number(value))
    columns: dict[str, Any] = {}
    for name in names:
        values = [fmean(own) for own in _by_fold(rows, name)]
        if name not in NOT_A_METRIC:
            columns[name] = {**mean_and_spread(values), **median_and_range(values)}
    return columns


def _by_fold(rows: list[Mapping[str, Any]], name: str) -> list[list[float]]:
    """Return a column's values, those of one fold together; without folds each row by itself."""
    found: dict[Any, list[float]] = {}
    for number, row in enumerate(rows):
        if _is_number(row.get(name)):
            found.setdefault(row.get("fold", ("row", number)), []).append(float(row[name]))
    return list(found.values())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
