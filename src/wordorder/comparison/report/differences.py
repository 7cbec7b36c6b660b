"""Put the differences between models into words, from the comparisons in a results file.

Differences of perplexities are shown in percent, those of other metrics in the metric's own unit; the sign is that of
the metric, so that a lower perplexity has a negative difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median

from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.claims import margin_in_words, p_in_words
from wordorder.comparison.report.numbers import MISSING
from wordorder.comparison.results_file import Comparison, Results
from wordorder.comparison.statistics.outcomes import BETTER, IDENTICAL, NOT_DISTINGUISHABLE, TOO_FEW, WORSE
from wordorder.comparison.statistics.significance import between
from wordorder.comparison.statistics.summary import baseline_of

_WORDS = {
    BETTER: "significantly better",
    WORSE: "significantly worse",
    NOT_DISTINGUISHABLE: "not significant",
    TOO_FEW: "not tested: too few seeds",
}
"""Outcome as results.json has it -> words for a reader, where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The unit and the decimals that all differences of a results file are shown with."""

    percent: bool
    """True for percent of a perplexity, whose differences are of logarithms."""
    higher_is_better: bool = False
    places: int = 1

    def change(self, difference: float) -> float:
        """Return the change of the metric, for a difference that is positive where the model is better."""
        if self.percent:
            return 100 * math.expm1(-difference)
        return difference if self.higher_is_better else 0.0 - difference

    def text(self, difference: float, sign: str = "+") -> str:
        """Return the change in words: "−11.3%", "+0.025"."""
        value = self.change(difference)
        places = 0 if self.percent and self.places == 1 and abs(value) >= 100 else self.places
        return f"{_rounded(value, places, sign)}{'%' * self.percent}"

    def interval(self, low: float, high: float) -> str:
        """Return the ends of an interval, the lower one first: "[−15.6%, −7.7%]"."""
        return f"[{', '.join(self.text(end) for end in sorted((low, high), key=self.change))}]"


def unit_of(results: Results) -> Unit:
    """Return the unit of a results file's differences.

    The decimals are those of the second digit of half an interval, in the median over the comparisons, and more where
    the smallest difference would be shown as zero; in percent those of the first digit, at least one.
    """
    percent = any(entry.scale == "log" for entry in results.comparisons)
    unit = Unit(percent=percent, higher_is_better=quality_of(results).higher_is_better)
    halves = [
        abs(unit.change(entry.high) - unit.change(entry.low)) / 2
        for entry in results.comparisons
        if entry.low is not None and entry.high is not None and entry.high > entry.low
    ]
    sizes = [abs(unit.change(entry.difference)) for entry in results.comparisons if entry.difference]
    least = 1 if percent else 2
    places = max(least, _first_digit(median(halves)) + (not percent)) if halves else least + 1
    if sizes and not percent:
        places = min(max(places, _first_digit(min(sizes))), places + 2)
    return replace(unit, places=min(3 if percent else 6, places))


def _first_digit(value: float) -> int:
    """Return the number of decimals up to the first digit of a positive number."""
    return -math.floor(math.log10(value))


def outcome_in_words(entry: Comparison) -> str:
    """Return the outcome of a comparison in words: "not significant", "not significant: t5 lost 1 of 8 runs"."""
    return f"not significant: {entry.lost}" if entry.lost else _WORDS.get(entry.outcome, entry.outcome)


def references(results: Results) -> list[str]:
    """Return the models that others were compared with, the baseline first; all if all pairs were compared."""
    arms = [arm.name for arm in results.arms]
    pairs = {frozenset((entry.arm, entry.against)) for entry in results.comparisons}
    compared = {name for pair in pairs for name in pair}
    if len(pairs) > 1 and len(pairs) == len(compared) * (len(compared) - 1) // 2:
        found = [name for name in arms if name in compared]
    else:
        found = list(dict.fromkeys(entry.against for entry in results.comparisons))
    return sorted(found, key=lambda name: name != baseline_of(results))


def against(results: Results, reference: str) -> dict[str, Comparison]:
    """Return by model, in the order of the recipe, each comparison with one; {} for files without comparisons."""
    found = {arm.name: between(results.comparisons, arm.name, reference) for arm in results.arms}
    return {name: entry for name, entry in found.items() if entry is not None}


def in_short(entry: Comparison, unit: Unit) -> str:
    """Return one comparison in words: "−11.3% [−15.6%, −7.7%], p = 0.03"."""
    return " ".join(part for part in in_parts(entry, unit) if part)


def in_parts(entry: Comparison, unit: Unit) -> tuple[str, str]:
    """Return `in_short` in two halves, for narrow columns: the difference, and its interval with p."""
    outcome, difference = entry.outcome, entry.difference
    if outcome == IDENTICAL or difference is None:
        return outcome_in_words(entry), ""
    around = "" if entry.low is None or entry.high is None else unit.interval(entry.low, entry.high)
    p = p_in_words(entry)
    if outcome == TOO_FEW:  # where no p could be small enough, it says nothing
        tested = ""
    elif outcome in (BETTER, WORSE):
        tested = p
    else:
        tested = f"{outcome_in_words(entry)}{f' ({p})' if p else ''}"
    return unit.text(difference), ", ".join(part for part in (around, tested) if part)


def for_table(entry: Comparison, unit: Unit) -> tuple[str, str]:
    """Return `in_parts`, by Welch's test where seeds are too few for an exact one."""
    told = by_welch(entry)
    if told is entry:
        return in_parts(entry, unit)
    claim = entry.retrained
    if claim is not None and claim.outcome == NOT_DISTINGUISHABLE and claim.same:
        told = told.having(outcome=f"the same within {margin_in_words(claim, ratio=entry.scale == 'log')}")
    return in_parts(told, unit)


def by_welch(entry: Comparison) -> Comparison:
    """Return a comparison with the numbers of Welch's test where seeds are too few for an exact one."""
    claim = entry.retrained
    if entry.outcome != TOO_FEW or claim is None:
        return entry
    fields = ("difference", "low", "high", "p", "p_adjusted", "outcome", "lost")
    return entry.having(**{name: getattr(claim, name) for name in fields})


def difference_title(results: Results) -> str:
    """Return the label of an axis of differences, with the unit."""
    name = quality_of(results).name
    return f"Difference in {name}{' (percent)' * unit_of(results).percent}"


def meaning(results: Results) -> str:
    """Explain in sentences what a difference means; return "" without comparisons. The verdict explains the tests."""
    if not results.comparisons:
        return ""
    quality, level = quality_of(results), 100 * (1 - (results.significance.level or 0.05))
    means = ", of geometric means over the runs" if unit_of(results).percent and results.statistic == "mean" else ""
    side = "above" if quality.higher_is_better else "below"
    shown = f"Difference: in {quality.name} from the baseline{means}; {side} zero is better. "
    shown += f"[...]: its {level:g}% interval."
    if all(entry.outcome == TOO_FEW and entry.retrained is None for entry in results.comparisons):
        return f"{shown} Too few seeds to test it; the interval assumes roughly normal seeds."
    welch = [entry for entry in results.comparisons if by_welch(entry) is not entry]
    where = " where seeds are too few for the exact test" if len(welch) < len(results.comparisons) else ""
    return f"{shown} p by Welch's test, which assumes roughly normal seeds{where}." if welch else shown


def nats(value: float | None, places: int = 3) -> str:
    """Return a difference of logarithms with the sign of the metric: a lower perplexity is below zero."""
    return MISSING if value is None else _rounded(0.0 - value, places, "+")


def _rounded(value: float, places: int, sign: str = "") -> str:
    text = f"{value:{sign},.{places}f}"
    return text.replace("-", "\u2212") if float(text.replace(",", "")) else text.lstrip("+-")
