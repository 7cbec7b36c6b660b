"""Put the claims about new texts, and those of few seeds, into sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from wordorder.comparison.results_file import Claim, Comparison
from wordorder.comparison.statistics.claims import BOTH, NEW_TEXTS, SEGMENT
from wordorder.comparison.statistics.outcomes import BETTER, NO_CLAIM, NOT_DISTINGUISHABLE, WORSE
from wordorder.comparison.statistics.pareto import listed

_SMALL = 0.05  # ratios nearer to 1 are shown with three decimals
_FEW = 100
"""Units below which one-sided extremes make false claims on new texts clearly more frequent than the level says."""
Named = Sequence[tuple[str, Claim]]
"""Arms in words, each with a claim about the best arm against it."""


def p_in_words(entry: Claim | Comparison) -> str:
    """Return the corrected p-value, or the uncorrected one if there is no other, as "p = 0.03"; "" without a test."""
    p = entry.p if entry.p_adjusted is None else entry.p_adjusted
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def size_of(claim: Claim, *, ratio: bool, direction: str, confidence: float) -> tuple[str, str]:
    """Return how far the arm is ahead, and its evidence: "1.11 times lower", "95% interval 1.05 to 1.18, p = 0.012"."""
    places = 3 if abs(claim.difference or 0.0) < _SMALL else 2

    def show(value: float | None) -> str:
        return f"{math.exp(value or 0.0):.{places}f}" if ratio else f"{value or 0.0:.3g}"

    interval = ""
    if claim.low is not None:
        interval = f"{100 * confidence:.3g}% interval {show(claim.low)} to {show(claim.high)}, "
    return f"{show(claim.difference)} {'times lower' if ratio else direction}", f"{interval}{p_in_words(claim)}"


def margin_in_words(claim: Claim, *, ratio: bool) -> str:
    """Return the margin of equivalence: "1%" of a perplexity, "0.01" of an accuracy."""
    margin = claim.margin or 0.0
    return f"{100 * math.expm1(margin):.3g}%" if ratio else f"{margin:.3g}"


def on_texts_in_words(
    best: str, found: Mapping[str, Comparison], confidence: float, direction: Callable[[str], str]
) -> tuple[str, ...]:
    """Return a sentence for each kind of claim about new texts that the data allow; () if there is none.

    Args:
        best: the arm that leads.
        found: other arm -> the comparison of the best arm with it, nearest first.
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
        size = size_of(claim, ratio=ratio, direction=words, confidence=confidence)
        first = f"{nearest} ({', '.join(size)})"
        parts.append(f"better than {listed([first, *(arm for arm, _ in rest)])}")
    if tied := having(NOT_DISTINGUISHABLE):
        parts.append(f"not told apart from {listed([f'{arm} ({p_in_words(claim)})' for arm, claim in tied])}")
    if worse := having(WORSE):
        parts.append(f"worse than {listed([f'{arm} ({p_in_words(claim)})' for arm, claim in worse])}")
    if lost := having(NO_CLAIM):
        parts.append(f"not claimed to be better than {listed([f'{arm} ({claim.lost})' for arm, claim in lost])}")
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
