"""Format numbers for readers: with as many digits as their spread allows."""

import math
from collections.abc import Sequence

from wordorder.comparison.results_file import Aggregate
from wordorder.comparison.statistics.summary import SEEDS_FOR_A_SPREAD, spread

MISSING = "–"
_WILD = 0.2
_ENORMOUS = 1e15  # a perplexity that diverged; no count is so large


def significant(value: float | None, digits: int = 4) -> str:
    """Return ``value`` with a number of significant digits and separated thousands; from 10^15 on with an exponent."""
    if value is None or not math.isfinite(value):
        return MISSING
    if abs(value) >= _ENORMOUS:
        return f"{value:.1e}"
    places = 0 if value == 0 else max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def with_spread(entry: Aggregate | None, digits: int = 4, statistic: str = "mean") -> str:
    """Return ``mean ± std`` or ``median (lowest to highest)`` of a summary; below three seeds the centre alone."""
    if entry is None or entry.mean is None:
        return MISSING
    if statistic == "median":
        around = spread(entry, statistic)
        middle = significant(entry.median, digits)
        return middle if around is None else f"{middle} ({' to '.join(significant(end, digits) for end in around)})"
    mean, std = float(entry.mean), entry.std
    if std is None or entry.n < SEEDS_FOR_A_SPREAD:
        return significant(mean, digits)
    if max(abs(mean), std) >= _ENORMOUS:
        return f"{mean:.1e} ± {std:.1e}"
    places = places_beside(mean, std, digits)
    return f"{mean:,.{places}f} ± {std:,.{places}f}"


def places_beside(value: float, width: float, digits: int) -> int:
    """Return the decimals of a value with two digits of a spread, and no more than ``digits`` of the value.

    A spread of almost zero would show many.
    """
    most = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else digits
    return most if width == 0 else min(most, max(0, 1 - math.floor(math.log10(width))))


def steady(entry: Aggregate | None, digits: int = 4) -> str:
    """Return ``mean ± std`` where the spread is small beside the mean, else ``median (lowest to highest)``.

    For what a busy machine disturbs, such as speed: one run that had to wait moves a mean far.
    """
    if entry is None or not entry.mean or not entry.std or entry.median is None:
        return with_spread(entry, digits)
    wild = entry.std > _WILD * abs(entry.mean)
    return with_spread(entry, digits, "median" if wild else "mean")


def grouped(value: float | None) -> str:
    """Return a count with separated thousands."""
    return MISSING if value is None else f"{value:,.0f}"


def time_in_words(seconds: float | None) -> str:
    """Return a length of time: "8.4 s", "52 s", "3.1 min", "14 h"."""
    if seconds is None:
        return MISSING
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{significant(seconds / size, 2)} {unit}"
    return f"{significant(seconds, 2)} s"


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence: `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
