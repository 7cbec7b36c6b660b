"""The comparison in one sentence, with what the sentence rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wordorder.comparison.numbers import with_spread
from wordorder.comparison.quality import Quality, quality_of
from wordorder.comparison.statistics import SEEDS_FOR_A_SPREAD

RULE = (
    "Two arms count as distinguishable when their ranges, mean plus and minus one sample standard deviation over the "
    "seeds, do not overlap. This is a reading aid, not a test of significance."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Who was best, and how sure that is."""

    sentence: str
    evidence: str
    best: str | None = None
    ties: tuple[str, ...] = ()
    """Arms that are not distinguishable from the best."""


def ranked(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the summary's entries that have the headline metric, best first."""
    quality = quality_of(results)
    known = [entry for entry in results["summary"] if entry.get(quality.metric, {}).get("mean") is not None]
    sign = -1 if quality.higher_is_better else 1
    return sorted(known, key=lambda entry: sign * entry[quality.metric]["mean"])


def verdict(results: Mapping[str, Any]) -> Verdict:
    """Return the sentence for a results file."""
    quality, entries = quality_of(results), ranked(results)
    if not entries:
        return Verdict(sentence="No run has finished yet.", evidence="")
    best, others = entries[0], entries[1:]
    extreme = "highest" if quality.higher_is_better else "lowest"
    value = with_spread(best[quality.metric], quality.digits)
    name, unfinished = str(best["arm"]), _unfinished(results)
    if not others:
        return Verdict(sentence=f"{name} reached a test {quality.name} of {value}.", evidence=unfinished, best=name)
    fewest = min(int(entry[quality.metric]["n"]) for entry in entries)
    if fewest < SEEDS_FOR_A_SPREAD:
        sentence = f"{name} has the {extreme} test {quality.name}, {value}, {_gap(best, others[0], quality)}."
        seeds = "one seed" if fewest == 1 else f"{fewest} seeds"
        caution = f"With {seeds} per arm there is no spread to judge by: at least {SEEDS_FOR_A_SPREAD} are needed."
        return Verdict(sentence=sentence, evidence=_join(caution, unfinished), best=name)
    ties = [entry for entry in others if _overlap(best[quality.metric], entry[quality.metric])]
    apart = [entry for entry in others if entry not in ties]
    sentence = _sentence(best, ties, apart, quality)
    return Verdict(
        sentence=sentence,
        evidence=_join(RULE, unfinished),
        best=name,
        ties=tuple(str(entry["arm"]) for entry in ties),
    )


def _sentence(
    best: Mapping[str, Any], ties: Sequence[Mapping[str, Any]], apart: Sequence[Mapping[str, Any]], quality: Quality
) -> str:
    extreme = "highest" if quality.higher_is_better else "lowest"
    value = with_spread(best[quality.metric], quality.digits)
    lead = f"{best['arm']} has the {extreme} test {quality.name}, {value}"
    tied = _listed([f"{entry['arm']} ({with_spread(entry[quality.metric], quality.digits)})" for entry in ties])
    if not apart:
        return f"{lead}, but is not distinguishable from {tied}."
    gap = _gap(best, apart[0], quality)
    return f"{lead}, {gap}." if not ties else f"{lead}, not distinguishable from {tied}, but {gap}."


def _gap(best: Mapping[str, Any], other: Mapping[str, Any], quality: Quality) -> str:
    """Say how far the other arm is behind: a ratio for perplexities, a difference where more is better."""
    here, there = float(best[quality.metric]["mean"]), float(other[quality.metric]["mean"])
    behind = f"{other['arm']} ({with_spread(other[quality.metric], quality.digits)})"
    if quality.higher_is_better:
        return f"{here - there:.3g} above {behind}"
    return f"{there / here:.2f} times lower than {behind}" if here > 0 else f"below {behind}"


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return abs(one["mean"] - other["mean"]) <= one["std"] + other["std"]


def _unfinished(results: Mapping[str, Any]) -> str:
    if results.get("complete", True):
        return ""
    done, planned = len(results["rows"]), results["planned"]["runs"]
    return f"Only {done} of {planned} runs have finished; this may change."


def _listed(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _join(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
