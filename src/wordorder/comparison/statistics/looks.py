"""Keep the looks at a comparison: the runs, the family, the level and the date at which differences were tested.

To add seeds, or to ask for another family of comparisons, after a look at the results makes false claims more frequent
than the level says (docs/statistics.md has by how much), so every look is kept in results.json.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.newer_keys import entries_of
from wordorder.comparison.statistics.summary import by_run, compare_section, confidence_of, statistic_of
from wordorder.limits import read_json

Look = dict[str, Any]
_ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")


def with_look(results: Mapping[str, Any]) -> list[Look]:
    """Return the looks of a results file, with one at its present content if that differs from the last one.

    A look is ``{"date", "runs", "seeds", "baseline", "confidence", "metric", "statistic"}``: when; how many runs of
    each arm had finished, and with which seeds (``[fold, seed]`` where there are folds); the arm that all others were
    compared with, None for all pairs of arms; 1 less the level of the claims; what was compared, by mean or median.

    Args:
        results: with "looks", the earlier ones, or without.
    """
    looks = [dict(look) for look in entries_of(results, "looks")]
    if not results["rows"] or len(_before(results)) < len(looks):
        return looks
    return [*looks, {"date": datetime.now(UTC).isoformat(timespec="seconds"), **_now(results)}]


def looks_of(results: Mapping[str, Any]) -> list[Look]:
    """Return the looks that a results file holds; of an older file without any, the one that it was written for.

    Args:
        results: the content of a results file; anything else has no looks.
    """
    looks = [dict(look) for look in entries_of(results, "looks")]
    if not results.get("rows"):
        return looks
    now = _now(results)
    if "looks" not in results:
        return [{"date": None, **now}]
    if looks and _says_no_other(looks[-1], now):  # an earlier version kept counts alone: the rows say which seeds
        looks[-1] |= now
    return looks


def earlier_looks(path: Path) -> list[Look]:
    """Return the looks of a results file that is about to be overwritten; none if they cannot be read.

    Args:
        path: of results.json.
    """
    try:
        looks = looks_of(read_json(path))
        for look in looks:  # in a file that somebody changed one may lack something
            _in_words(look)
        return looks
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return []


def looks_in_words(results: Mapping[str, Any]) -> str:
    """Return the earlier looks at the results as a sentence; "" at the first look."""
    before = _before(results)
    if not before:
        return ""
    number = len(before)
    which = f"{_ORDINALS[number]} look" if number < len(_ORDINALS) else f"Look {number + 1}"
    return (
        f"{which} at these results; earlier looks: {'; '.join(map(_in_words, before))}. Adding runs, or changing "
        "what is compared, after a look makes false claims more frequent than the level says."
    )


def _before(results: Mapping[str, Any]) -> list[Look]:
    looks = [dict(look) for look in entries_of(results, "looks")]
    return looks[:-1] if looks and _says_no_other(looks[-1], _now(results)) else looks


def _says_no_other(look: Look, now: Mapping[str, Any]) -> bool:
    """Tell whether everything in a look agrees with the present one; a look of an earlier version holds less."""
    return all(value == now.get(name) for name, value in look.items() if name != "date")


def _now(results: Mapping[str, Any]) -> dict[str, Any]:
    runs = {arm: sorted(own, key=lambda unit: (unit[0] or 0, unit[1])) for arm, own in by_run(results).items()}
    return {
        "runs": dict(Counter(str(row["arm"]) for row in results["rows"])),
        "seeds": {arm: [seed if fold is None else [fold, seed] for fold, seed in own] for arm, own in runs.items()},
        "baseline": compare_section(results).get("baseline") or None,
        "confidence": confidence_of(results),
        "metric": quality_of(results).key,
        "statistic": statistic_of(results),
    }


def _in_words(look: Look) -> str:
    numbers = sorted(set(look["runs"].values()))
    n = f"n = {numbers[0]}" if len(numbers) == 1 else f"n = {numbers[0]} to {numbers[-1]}"
    family = f"against {look['baseline']}" if look["baseline"] else "all pairs of arms"
    day = f", {look['date'][:10]}" if look["date"] else ""
    return f"{n} ({family}, confidence {100 * look['confidence']:.3g}%{_seeds_in_words(look)}{day})"


def _seeds_in_words(look: Look) -> str:
    """Return the seeds, or folds, of a look in words; "" for a look of an earlier version."""
    units = [unit for own in look.get("seeds", {}).values() for unit in own]
    of_folds = any(isinstance(unit, list) for unit in units)
    numbers = sorted({unit[0] if of_folds else unit for unit in units})
    if not numbers:
        return ""
    in_a_row = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    said = f"{numbers[0]} to {numbers[-1]}" if in_a_row else ", ".join(map(str, numbers))
    return f", {'fold' if of_folds else 'seed'}{'s' * (len(numbers) > 1)} {said}"
