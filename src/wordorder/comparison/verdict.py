"""The comparison in one sentence, with what the sentence rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wordorder.comparison.numbers import with_spread
from wordorder.comparison.quality import Quality, is_marked_optimistic, quality_of, split_of
from wordorder.comparison.statistics import SEEDS_FOR_A_SPREAD, centre, repeats, spread, statistic_of

RULE = (
    "Two arms count as distinguishable when their ranges, mean plus and minus one sample standard deviation over the "
    "{of}s, do not overlap. This is a reading aid, not a test of significance."
)
RULE_FOR_MEDIANS = (
    "Two arms count as distinguishable when their ranges, from the lowest to the highest {of}, do not overlap. This is "
    "a reading aid, not a test of significance."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Who was best, and how sure that is."""

    sentence: str
    evidence: str
    best: str | None = None
    ties: tuple[str, ...] = ()
    """Arms that are not distinguishable from the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """How arms are measured in a results file: the metric, its split, and what stands for several seeds."""

    quality: Quality
    split: str
    statistic: str
    optimistic: bool

    @property
    def name(self) -> str:
        median = "median " if self.statistic == "median" else ""
        return f"{median}{'optimistic ' if self.optimistic else ''}{self.split} {self.quality.name}"

    @property
    def extreme(self) -> str:
        return "highest" if self.quality.higher_is_better else "lowest"

    def value(self, entry: Mapping[str, Any]) -> float | None:
        return centre(entry.get(self.quality.metric), self.statistic)

    def text(self, entry: Mapping[str, Any]) -> str:
        return with_spread(entry[self.quality.metric], self.quality.digits, self.statistic)

    def overlap(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        ranges = [spread(entry[self.quality.metric], self.statistic) for entry in (one, other)]
        (low, high), (other_low, other_high) = (found or (0.0, 0.0) for found in ranges)
        return low <= other_high and other_low <= high

    def gap(self, best: Mapping[str, Any], other: Mapping[str, Any]) -> str:
        """Say how far the other arm is behind: a ratio for perplexities, a difference where more is better."""
        here, there = self.value(best) or 0.0, self.value(other) or 0.0
        behind = f"{other['arm']} ({self.text(other)})"
        if self.quality.higher_is_better:
            return f"{here - there:.3g} above {behind}"
        return f"{there / here:.2f} times lower than {behind}" if here > 0 else f"below {behind}"


def _measure(results: Mapping[str, Any]) -> _Measure:
    return _Measure(
        quality=quality_of(results),
        split=split_of(results),
        statistic=statistic_of(results),
        optimistic=is_marked_optimistic(results),
    )


def ranked(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the summary's entries that have the headline metric, best first."""
    measure = _measure(results)
    values = [(entry, measure.value(entry)) for entry in results["summary"]]
    sign = -1 if measure.quality.higher_is_better else 1
    known = [(sign * value, entry) for entry, value in values if value is not None]
    return [entry for _, entry in sorted(known, key=lambda pair: pair[0])]


def verdict(results: Mapping[str, Any]) -> Verdict:
    """Return the sentence for a results file."""
    measure, entries = _measure(results), ranked(results)
    if not entries:
        return Verdict(sentence="No run has finished yet.", evidence="")
    best, others = entries[0], entries[1:]
    name, unfinished = str(best["arm"]), _unfinished(results)
    if not others:
        return Verdict(
            sentence=f"{name} reached a {measure.name} of {measure.text(best)}.", evidence=unfinished, best=name
        )
    lead = f"{name} has the {measure.extreme} {measure.name}, {measure.text(best)}"
    of, _ = repeats(results)
    fewest = min(int(entry[measure.quality.metric]["n"]) for entry in entries)
    if fewest < SEEDS_FOR_A_SPREAD:
        seeds = f"one {of}" if fewest == 1 else f"{fewest} {of}s"
        caution = f"With {seeds} per arm there is no spread to judge by: at least {SEEDS_FOR_A_SPREAD} are needed."
        equal = [str(entry["arm"]) for entry in others if measure.value(entry) == measure.value(best)]
        sentence = f"{lead}, {f'the same as {_listed(equal)}' if equal else measure.gap(best, others[0])}."
        return Verdict(sentence=sentence, evidence=_join(caution, unfinished), best=name)
    ties = [entry for entry in others if measure.overlap(best, entry)]
    apart = [entry for entry in others if entry not in ties]
    rule = RULE_FOR_MEDIANS if measure.statistic == "median" else RULE
    return Verdict(
        sentence=_sentence(lead, best, ties, apart, measure),
        evidence=_join(rule.format(of=of), unfinished),
        best=name,
        ties=tuple(str(entry["arm"]) for entry in ties),
    )


def _sentence(
    lead: str,
    best: Mapping[str, Any],
    ties: Sequence[Mapping[str, Any]],
    apart: Sequence[Mapping[str, Any]],
    measure: _Measure,
) -> str:
    tied = _listed([f"{entry['arm']} ({measure.text(entry)})" for entry in ties])
    if not apart:
        return f"{lead}, but is not distinguishable from {tied}."
    gap = measure.gap(best, apart[0])
    return f"{lead}, {gap}." if not ties else f"{lead}, not distinguishable from {tied}, but {gap}."


def _unfinished(results: Mapping[str, Any]) -> str:
    if results.get("complete", True):
        return ""
    done, planned = len(results["rows"]), results["planned"]["runs"]
    return f"Only {done} of {planned} runs have finished; this may change."


def _listed(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _join(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
