"""Keep the looks at a comparison: the runs, the family, the level and the date at which differences were tested.

To add seeds, or to change what is compared, after a look makes false claims more frequent (docs/statistics.md).
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from wordorder.comparison.results_file import Look, Results, read_results
from wordorder.comparison.statistics.summary import by_run, confidence_of, quality_of, scale_of

_ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")


def with_look(results: Results) -> tuple[Look, ...]:
    """Return the looks of a results file, with one at its present content if that differs from the last one."""
    looks = results.looks
    if not results.rows or len(_before(results)) < len(looks):
        return looks
    return (*looks, _now(results, date=datetime.now(UTC).isoformat(timespec="seconds")))


def earlier_looks(path: Path) -> tuple[Look, ...]:
    """Return the looks of a results file that is about to be overwritten; none if they cannot be read."""
    try:
        looks = read_results(path).looks
        for look in looks:  # in a file that somebody changed one may have no runs, or a number that cannot be written
            _in_words(look)
        return looks
    except (ValueError, LookupError, ArithmeticError):
        return ()


def looks_in_words(results: Results) -> str:
    """Return the earlier looks at the results as a sentence; "" at the first look."""
    before = _before(results)
    if not before:
        return ""
    number = len(before)
    which = f"{_ORDINALS[number]} look" if number < len(_ORDINALS) else f"Look {number + 1}"
    return (
        f"{which} at these results; earlier looks: {'; '.join(map(_in_words, before))}. Adding runs, or changing "
        "what is compared, after a look makes false claims more frequent than the level says, in every kind of claim."
    )


def _before(results: Results) -> tuple[Look, ...]:
    looks = results.looks
    return looks[:-1] if looks and looks[-1] == _now(results, date=looks[-1].date) else looks


def _now(results: Results, date: str) -> Look:
    runs = {arm: sorted(own, key=lambda unit: (unit[0] or 0, unit[1])) for arm, own in by_run(results).items()}
    return Look(
        date=date,
        runs=dict(Counter(row.arm for row in results.rows)),
        seeds={arm: tuple(seed if fold is None else (fold, seed) for fold, seed in own) for arm, own in runs.items()},
        baseline=results.compare.baseline or None,
        confidence=confidence_of(results),
        equivalence=scale_of(results).equivalence,
        metric=quality_of(results).key,
        statistic=results.statistic,
    )


def _in_words(look: Look) -> str:
    numbers = sorted(set(look.runs.values()))
    n = f"n = {numbers[0]}" if len(numbers) == 1 else f"n = {numbers[0]} to {numbers[-1]}"
    family = f"against {look.baseline}" if look.baseline else "all pairs of arms"
    day = f", {look.date[:10]}" if look.date else ""
    return f"{n} ({family}, confidence {100 * look.confidence:.3g}%{_seeds_in_words(look)}{day})"


def _seeds_in_words(look: Look) -> str:
    """Return the seeds, or folds, of a look in words; "" where it names none."""
    units = [unit for own in look.seeds.values() for unit in own]
    of_folds = any(isinstance(unit, tuple) for unit in units)
    numbers = sorted({unit[0] if isinstance(unit, tuple) else unit for unit in units})
    if not numbers:
        return ""
    in_a_row = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    said = f"{numbers[0]} to {numbers[-1]}" if in_a_row else ", ".join(map(str, numbers))
    return f", {'fold' if of_folds else 'seed'}{'s' * (len(numbers) > 1)} {said}"
