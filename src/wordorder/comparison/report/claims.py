"""Put the tests on new texts, and those of few seeds, into sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from wordorder.comparison.results_file import Claim, Comparison
from wordorder.comparison.statistics.claims import BOTH, NEW_TEXTS, SEGMENT
from wordorder.comparison.statistics.outcomes import BETTER, NO_CLAIM, NOT_DISTINGUISHABLE, WORSE
from wordorder.comparison.statistics.pareto import listed

_FEW = 100
"""Units below which one-sided extremes make false positives on new texts clearly more frequent than the level says."""
Named = Sequence[tuple[str, Claim]]
"""Models in words, each with a test of the best one against it."""


def p_in_words(entry: Claim | Comparison) -> str:
    """Return the corrected p-value, or the uncorrected one if there is no other, as "p = 0.03"; "" without a test."""
    p = entry.p if entry.p_adjusted is None else entry.p_adjusted
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def size_of(entry: Claim | Comparison, *, ratio: bool, confidence: float) -> tuple[str, str]:
    """Return how far a model is ahead, and its evidence: "7.6%", "95% interval 4.8% to 10%, p = 0.012"."""

    def show(value: float | None) -> str:
        return percent_below(value or 0.0) if ratio else f"{value or 0.0:.3g}"

    interval = ""
    if entry.low is not None:
        interval = f"{100 * confidence:.3g}% interval {show(entry.low)} to {show(entry.high)}"
    return show(entry.difference), ", ".join(part for part in (interval, p_in_words(entry)) if part)


def percent_below(difference: float) -> str:
    """Return by how many percent a perplexity is lower, from the difference of logarithms: "7.6%"."""
    return in_percent(-100 * math.expm1(-difference))


def in_percent(value: float) -> str:
    """Return a percentage with two digits, and with more where two would say 100."""
    places = 2 if 99 <= abs(value) < 100 else max(0, 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{places}f}%".replace("-", "\u2212")


def margin_in_words(claim: Claim, *, ratio: bool) -> str:
    """Return the margin of equivalence: "1%" of a perplexity, "0.01" of an accuracy."""
    margin = claim.margin or 0.0
    return f"{100 * math.expm1(margin):.3g}%" if ratio else f"{margin:.3g}"


def on_texts_in_words(
    best: str, found: Mapping[str, Comparison], confidence: float, direction: Callable[[str], str]
) -> tuple[str, ...]:
    """Return a sentence for each kind of test on new texts that the data allow; () if there is none.

    Args:
        best: the model that leads.
        found: other model -> the comparison of the best one with it, nearest first.
        confidence: of the intervals.
        direction: from a measure to "above" or "below".
    """
    kinds = ((NEW_TEXTS, "These trained models, on new texts"), (BOTH, "Retrained, and on new texts"))
    sentences: list[str] = []
    for kind, begin in kinds:
        claims = {arm: claim for arm, entry in found.items() if (claim := getattr(entry, kind)) is not None}
        if claims:
            caveat = ""
            if not sentences and next(iter(claims.values())).unit == SEGMENT:
                caveat = "; segments of one document go together, so that the p-value may be too small"
            standing = _standing(claims, confidence, direction)
            sentences.append(f"{begin}: {best} is {standing}, {_method(kind, claims)}{caveat}.")
    return tuple(sentences)


def _standing(claims: Mapping[str, Claim], confidence: float, direction: Callable[[str], str]) -> str:
    def having(outcome: str) -> Named:
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


def _method(kind: str, claims: Mapping[str, Claim]) -> str:
    first = next(iter(claims.values()))
    texts = f"{first.units:,} {first.unit}s"
    corrected = " with Holm's correction" if len(claims) > 1 else ""
    if kind == NEW_TEXTS:
        few = " (few)" if (first.units or 0) < _FEW else ""
        said = f"by sign flips of {texts}{few}{corrected}"
    else:
        said = (
            f"by crossed random effects of {first.seeds} seeds and {texts}{corrected}, which assume roughly normal "
            "seeds"
        )
    return said
