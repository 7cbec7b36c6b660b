"""Format numbers, and put the differences between models into words, from the comparisons in a results file.

Differences of perplexities are shown in percent, those of other metrics in the metric's own unit; the sign is that of
the metric, so that a lower perplexity has a negative difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from wordorder.comparison.results_file import Aggregate, Claim, Comparison, Results
from wordorder.comparison.statistics.claims import BOTH, NEW_TEXTS, SEGMENT
from wordorder.comparison.statistics.seeds import (
    BETTER,
    IDENTICAL,
    NO_CLAIM,
    NOT_DISTINGUISHABLE,
    NOT_TESTED,
    SAME,
    WORSE,
)
from wordorder.comparison.statistics.significance import between
from wordorder.comparison.statistics.summary import SEEDS_FOR_A_SPREAD, baseline_of, quality_of, spread
from wordorder.tasks.task import LARGEST_LOSS

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
    """Return ``mean ± std``, or ``median (lowest to highest)`` where a busy machine made the spread large."""
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


_WORDS = {
    BETTER: "significantly better",
    WORSE: "significantly worse",
    NOT_DISTINGUISHABLE: "not significant",
    NOT_TESTED: "not tested: too few seeds",
}
"""Outcome as results.json has it -> words for a reader, where they differ."""


_HUGE = 1e7
"""Percentages from which on the power of ten is enough: a perplexity diverged."""


def percent_of(difference: float) -> float:
    """Return the change of a perplexity in percent, for a difference of logarithms, positive where it is lower."""
    return 100 * math.expm1(min(-difference, LARGEST_LOSS))


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
            return percent_of(difference)
        return difference if self.higher_is_better else 0.0 - difference

    def text(self, difference: float, sign: str = "+") -> str:
        """Return the change in words: "−11.3%", "+0.025"."""
        value = self.change(difference)
        if self.percent and abs(value) >= _HUGE:
            return f"{value:{sign}.0e}%"
        places = 0 if self.percent and self.places == 1 and abs(value) >= 100 else self.places
        return f"{_rounded(value, places, sign)}{'%' * self.percent}"

    def interval(self, entry: Comparison) -> str:
        """Return the ends of a comparison's interval, the lower one first: "[−15.6%, −7.7%]"; "" without one."""
        if entry.low is None or entry.high is None:
            return ""
        return f"[{', '.join(self.text(end) for end in sorted((entry.low, entry.high), key=self.change))}]"


def unit_of(results: Results) -> Unit:
    """Return the unit of a results file's differences.

    Its decimals reach the second digit of half an interval (median over the comparisons), or the smallest difference;
    in percent the first digit, at least one.
    """
    percent = any(entry.scale == "log" for entry in results.comparisons)
    unit = Unit(percent=percent, higher_is_better=quality_of(results).higher_is_better)
    halves = [
        abs(unit.change(entry.high) - unit.change(entry.low)) / 2
        for entry in results.comparisons
        if entry.low is not None and entry.high is not None
    ]
    halves = [half for half in halves if half > 0]  # a difference that is rounded to -100% has no width
    sizes = [abs(unit.change(entry.difference)) for entry in results.comparisons if entry.difference]
    least = 1 if percent else 2
    places = max(least, _first_digit(median(halves)) + (not percent)) if halves else least + 1
    if sizes and not percent:
        places = min(max(places, _first_digit(min(sizes))), places + 2)
    return replace(unit, places=min(3 if percent else 6, places))


def _first_digit(value: float) -> int:
    return -math.floor(math.log10(value))


def outcome_in_words(entry: Comparison) -> str:
    """Return the outcome of a comparison in words: "not significant", "not significant: t5 lost 1 of 8 runs"."""
    if entry.lost:
        return f"not significant: {entry.lost}"
    if entry.outcome == SAME:
        return f"the same within {margin_in_words(entry)}"
    return _WORDS.get(entry.outcome, entry.outcome)


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
    """Return one comparison in words: "−11.3% [−15.6%, −7.7%], p = 0.03", or "−11.3%, p = 0.03"."""
    difference, rest = in_parts(entry, unit)
    return f"{difference}{'' if not rest else ' ' if rest.startswith('[') else ', '}{rest}"


def in_parts(entry: Comparison, unit: Unit) -> tuple[str, str]:
    """Return `in_short` in two halves, for narrow columns: the difference, and its interval with p."""
    outcome, difference = entry.outcome, entry.difference
    if outcome == IDENTICAL or difference is None:
        return outcome_in_words(entry), ""
    tested = "" if outcome == NOT_TESTED else p_in_words(entry)
    if outcome not in (NOT_TESTED, BETTER, WORSE):
        tested = f"{outcome_in_words(entry)}{f' ({tested})' if tested else ''}"
    return unit.text(difference), ", ".join(part for part in (unit.interval(entry), tested) if part)


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
    shown = f"Difference: in {quality.name} from the baseline{means}; {side} zero is better."
    if all(entry.test is None for entry in results.comparisons):
        return shown
    return f"{shown} [...]: its {level:g}% interval, for all differences together."


def nats(value: float | None, places: int = 3) -> str:
    """Return a difference of logarithms with the sign of the metric: a lower perplexity is below zero."""
    return MISSING if value is None else _rounded(0.0 - value, places, "+")


def _rounded(value: float, places: int, sign: str = "") -> str:
    text = f"{value:{sign},.{places}f}"
    return text.replace("-", "\u2212") if float(text.replace(",", "")) else text.lstrip("+-")


_FEW = 100
"""Units below which one-sided extremes make false positives on new texts clearly more frequent than the level says."""


def p_in_words(entry: Claim | Comparison) -> str:
    """Return the corrected p-value, or the uncorrected one if there is no other, as "p = 0.03"; "" without a test."""
    p = entry.p if entry.p_adjusted is None else entry.p_adjusted
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def size_of(entry: Claim | Comparison, *, ratio: bool, confidence: float) -> tuple[str, str]:
    """Return how far a model is ahead, and its evidence: "7.6%", "95% interval 4.8% to 10%, p = 0.012"."""

    def show(value: float | None) -> str:
        return in_percent(-percent_of(value or 0.0)) if ratio else f"{value or 0.0:.3g}"

    interval = ""
    if entry.low is not None:
        interval = f"{100 * confidence:.3g}% interval {show(entry.low)} to {show(entry.high)}"
    return show(entry.difference), ", ".join(part for part in (interval, p_in_words(entry)) if part)


def in_percent(value: float) -> str:
    """Return a percentage with two digits, and with more where two would say 100."""
    if abs(value) >= _HUGE:
        return f"{value:.0e}%".replace("-", "\u2212")
    places = 2 if 99 <= abs(value) < 100 else max(0, 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{places}f}%".replace("-", "\u2212")


def margin_in_words(entry: Comparison) -> str:
    """Return the margin of equivalence: "1%" of a perplexity, "0.01" of an accuracy."""
    margin = entry.margin or 0.0
    return f"{100 * math.expm1(margin):.3g}%" if entry.scale == "log" else f"{margin:.3g}"


def on_texts_in_words(
    best: str,
    found: Mapping[str, Comparison],
    confidence: float,
    direction: Callable[[str], str],
    *,
    corrected: bool,
) -> tuple[str, ...]:
    """Return a sentence for each kind of test on new texts that the data allow; () if there is none.

    `found` has the comparison of the best model with each other, nearest first; `direction` says "above" or "below" for
    a measure.
    """
    sentences: list[str] = []
    for kind, begin in ((NEW_TEXTS, "These trained models, on new texts"), (BOTH, "Retrained, and on new texts")):
        claims = {arm: claim for arm, entry in found.items() if (claim := getattr(entry, kind)) is not None}
        if claims:
            standing = f"{_standing(claims, confidence, direction)}, {_method(kind, claims, corrected=corrected)}"
            if not sentences and next(iter(claims.values())).unit == SEGMENT:
                standing += "; segments of one document go together, so that the p-value may be too small"
            sentences.append(f"{begin}: {best} is {standing}.")
    return tuple(sentences)


def _standing(claims: Mapping[str, Claim], confidence: float, direction: Callable[[str], str]) -> str:
    def having(outcome: str) -> list[tuple[str, Claim]]:
        return [(arm, claim) for arm, claim in claims.items() if claim.outcome == outcome]

    parts: list[str] = []
    if better := having(BETTER):
        (nearest, claim), *rest = better
        ratio = claim.measure.startswith("log ")
        words = f"{direction(claim.measure)}{'' if ratio else f' in {claim.measure}'}"
        size, evidence = size_of(claim, ratio=ratio, confidence=confidence)
        parts.append(f"better than {listed([f'{nearest} ({size} {words}, {evidence})', *(arm for arm, _ in rest)])}")
    if tied := having(NOT_DISTINGUISHABLE):
        level = listed([f"{arm} ({p_in_words(claim)})" for arm, claim in tied])
        parts.append(f"not significantly different from {level}")
    if worse := having(WORSE):
        parts.append(f"worse than {listed([f'{arm} ({p_in_words(claim)})' for arm, claim in worse])}")
    if lost := having(NO_CLAIM):
        parts.append(f"not significantly better than {listed([f'{arm} ({claim.lost})' for arm, claim in lost])}")
    return ", ".join(parts)


def _method(kind: str, claims: Mapping[str, Claim], *, corrected: bool) -> str:
    first = next(iter(claims.values()))
    texts, holm = f"{first.units:,} {first.unit}s", " with Holm's correction" * corrected
    if kind == NEW_TEXTS:
        return f"by sign flips of {texts}{' (few)' * ((first.units or 0) < _FEW)}{holm}"
    return f"by crossed random effects of {first.seeds} seeds and {texts}{holm}, which assume roughly normal seeds"
