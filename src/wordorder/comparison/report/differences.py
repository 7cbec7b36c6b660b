"""Put the differences between arms into words, from the comparisons in a results file."""

from __future__ import annotations

import math
from statistics import median

from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.claims import margin_in_words, p_in_words
from wordorder.comparison.report.numbers import MISSING
from wordorder.comparison.results_file import Comparison, Results
from wordorder.comparison.statistics.outcomes import NOT_DISTINGUISHABLE, TOO_FEW
from wordorder.comparison.statistics.significance import between
from wordorder.comparison.statistics.summary import baseline_of


def outcome_in_words(entry: Comparison) -> str:
    """Return the outcome of a comparison in words: "not distinguishable", "no claim: t5 lost 1 of 8 runs"."""
    if entry.lost:
        return f"no claim: {entry.lost}"
    return "too few seeds for a claim" if entry.outcome == TOO_FEW else entry.outcome


def references(results: Results) -> list[str]:
    """Return the arms that others were compared with, the baseline first; all arms if all pairs were compared."""
    arms = [arm.name for arm in results.arms]
    pairs = {frozenset((entry.arm, entry.against)) for entry in results.comparisons}
    compared = {name for pair in pairs for name in pair}
    if len(pairs) > 1 and len(pairs) == len(compared) * (len(compared) - 1) // 2:
        found = [name for name in arms if name in compared]
    else:
        found = list(dict.fromkeys(entry.against for entry in results.comparisons))
    return sorted(found, key=lambda name: name != baseline_of(results))


def against(results: Results, reference: str) -> dict[str, Comparison]:
    """Return by arm, in the order of the recipe, each comparison with one arm; {} for files without comparisons."""
    found = {arm.name: between(results.comparisons, arm.name, reference) for arm in results.arms}
    return {name: entry for name, entry in found.items() if entry is not None}


def in_short(entry: Comparison, places: int = 2) -> str:
    """Return one comparison in words: "better by 0.12 [0.08, 0.17], p = 0.03"."""
    return " ".join(part for part in in_parts(entry, places) if part)


def in_parts(entry: Comparison, places: int = 2) -> tuple[str, str]:
    """Return `in_short` in two halves, for narrow columns: the difference, and its interval with p."""
    outcome, difference = entry.outcome, entry.difference
    words = "too few seeds" if outcome == "too few" else outcome_in_words(entry)
    if outcome == "identical" or difference is None:
        return words, ""
    sign = -1 if outcome == "worse" else 1  # "worse by 0.12", not "worse by -0.12"
    low, high = entry.low, entry.high
    signed = "" if outcome in {"better", "worse"} else "+"
    lead = f"{words} by" if not signed else f"{words};" if entry.lost else f"{words}:"
    first = f"{lead} {_rounded(sign * difference, places, signed)}"
    around = ""
    if low is not None and high is not None:
        ends = sorted((sign * low, sign * high))
        around = f"[{', '.join(_rounded(end, places) for end in ends)}]"
    # Where no p could be small enough, it says nothing.
    p = "" if outcome == "too few" else p_in_words(entry)
    return first, ", ".join(part for part in (around, p) if part)


def for_table(entry: Comparison, places: int = 2) -> tuple[str, str]:
    """Return `in_parts`, by Welch's test where seeds are too few for an exact one."""
    claim = entry.retrained
    if entry.outcome != TOO_FEW or claim is None:
        return in_parts(entry, places)
    fields = ("difference", "low", "high", "p", "p_adjusted", "outcome", "lost")
    told = entry.having(**{name: getattr(claim, name) for name in fields})
    if claim.outcome == NOT_DISTINGUISHABLE and claim.same:
        told = told.having(outcome=f"the same within {margin_in_words(claim, ratio=entry.scale == 'log')}")
    first, second = in_parts(told, places)
    return first, f"{second} (Welch)"


def places_of(results: Results) -> int:
    """Return the number of decimals that all differences of a results file are shown with.

    As many as the first digit of half an interval needs, in the median over the comparisons; at least 2.
    """
    intervals = [(entry.low, entry.high) for entry in results.comparisons]
    halves = [(high - low) / 2 for low, high in intervals if low is not None and high is not None and high > low]
    if not halves:
        return 3
    return min(8, max(2, -math.floor(math.log10(median(halves)))))


def percent(entry: Comparison) -> str:
    """Return how much lower or higher the arm's metric is in percent, for a difference of logarithms."""
    if entry.scale != "log" or entry.difference is None:
        return MISSING
    change = 100 * math.expm1(-entry.difference)
    return "0%" if not change else f"{abs(change):.3g}% {'lower' if change < 0 else 'higher'}"


def difference_title(results: Results) -> str:
    """Return the label of an axis of differences, with the unit."""
    name = quality_of(results).name
    if any(entry.scale == "log" for entry in results.comparisons):
        return f"Difference in ln({name}) (nats)"
    return f"Difference in {name}"


def meaning(results: Results) -> str:
    """Explain in sentences what a difference means; return "" without comparisons. The verdict explains the tests."""
    if not results.comparisons:
        return ""
    unit = ""
    if any(entry.scale == "log" for entry in results.comparisons):
        unit = f" It is of natural logarithms, in nats: by 0.1 better is a {quality_of(results).name} 9.5% lower."
    welch = any(entry.outcome == TOO_FEW and entry.retrained is not None for entry in results.comparisons)
    note = " (Welch): by Welch's test, which assumes roughly normal seeds." if welch else ""
    return f"A difference above zero says that the arm is better.{unit}{note}"


def _rounded(value: float, places: int, sign: str = "") -> str:
    text = f"{value:{sign},.{places}f}"
    return text.replace("-", "\u2212") if float(text.replace(",", "")) else text.lstrip("+-")
