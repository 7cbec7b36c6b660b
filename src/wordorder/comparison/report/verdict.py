"""State the result of a comparison in one sentence, with its evidence."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from wordorder.comparison.quality import is_marked_optimistic, quality_of
from wordorder.comparison.report.numbers import significant, with_spread
from wordorder.comparison.results_file import Comparison, Results, Significance, Summary
from wordorder.comparison.statistics.looks import looks_in_words
from wordorder.comparison.statistics.pareto import listed
from wordorder.comparison.statistics.significance import (
    BETTER,
    IDENTICAL,
    NO_CLAIM,
    TOO_FEW,
    WORSE,
    Conclusions,
    between,
    compare_arms,
    lost_runs,
    waiting_runs,
)
from wordorder.comparison.statistics.summary import (
    SEEDS_FOR_A_SPREAD,
    centre,
    confidence_of,
    repeats,
    spread,
)
from wordorder.tasks import Metric

DESCRIPTION = (
    "As a description, not a claim: the ranges, mean plus and minus one sample standard deviation over the {of}s, "
)
DESCRIPTION_OF_MEDIANS = "As a description, not a claim: the ranges, from the lowest to the highest {of}, "


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The best arm of a comparison in a sentence, with the evidence for it."""

    sentence: str
    evidence: str
    best: str | None = None
    ties: tuple[str, ...] = ()
    """Arms over which no advantage of the best is claimed: not distinguishable, identical, not tested, too few seeds
    for any claim, or more runs lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """The measure of arms in a results file: the metric, its split, and the statistic over seeds."""

    quality: Metric
    split: str
    statistic: str
    optimistic: bool
    confidence: float

    @property
    def name(self) -> str:
        median = "median " if self.statistic == "median" else ""
        return f"{median}{'optimistic ' if self.optimistic else ''}{self.split} {self.quality.name}"

    @property
    def extreme(self) -> str:
        return "highest" if self.quality.higher_is_better else "lowest"

    def value(self, entry: Summary) -> float | None:
        return centre(entry.columns.get(self.quality.key), self.statistic)

    def text(self, entry: Summary) -> str:
        return with_spread(entry.columns[self.quality.key], self.quality.digits, self.statistic)

    def overlap(self, one: Summary, other: Summary) -> bool:
        ranges = [spread(entry.columns[self.quality.key], self.statistic) for entry in (one, other)]
        (low, high), (other_low, other_high) = (found or (0.0, 0.0) for found in ranges)
        return low <= other_high and other_low <= high

    def gap(self, best: Summary, other: Summary) -> str:
        """Return how far the other arm is behind in the table: a ratio for perplexities, a difference else."""
        here, there = self.value(best) or 0.0, self.value(other) or 0.0
        behind = f"{other.arm} ({self.text(other)})"
        if self.quality.key == "perplexity" and here > 0:
            return f"{there / here:.2f} times lower than {behind}"
        return f"{abs(here - there):.3g} {'above' if self.quality.higher_is_better else 'below'} {behind}"

    def claim(self, other: Summary, found: Comparison) -> str:
        """Return a tested advantage in words: size and interval by pairs, corrected p-value, number of pairs."""
        ratio, direction = found.scale == "log", "above" if self.quality.higher_is_better else "below"

        def show(value: float | None) -> str:
            return f"{math.exp(value or 0.0):.2f}" if ratio else f"{value or 0.0:.3g}"

        size = f"{show(found.difference)} {'times lower than' if ratio else direction}"
        interval = (
            f"{100 * self.confidence:.3g}% interval {show(found.low)} to {show(found.high)}, "
            if found.low is not None
            else ""
        )
        return f"{size} {other.arm} ({self.text(other)}; {interval}p = {_p(found)}, n = {found.n})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """The arms behind the best, grouped by the outcomes of the tests; in order of rank."""

    ahead_of: list[tuple[Summary, Comparison]]
    """Summary and comparison of the arms over which an advantage is claimed."""
    tied: list[tuple[Summary, Comparison]]
    identical: list[Summary]
    too_few: list[tuple[Summary, Comparison]]
    untested: list[Summary]
    behind: list[tuple[Summary, Comparison]]
    """Arms that are better pair by pair though their mean or median is not: possible, and rare."""
    lost: list[tuple[Summary, Comparison]]
    """Arms over which nothing is claimed because the arm that is ahead lost more runs."""


def ranked(results: Results) -> list[Summary]:
    """Return the summary's entries that have the headline metric, best first."""
    measure = _measure(results)
    values = [(entry, measure.value(entry)) for entry in results.summary]
    sign = -1 if measure.quality.higher_is_better else 1
    known = [(sign * value, entry) for entry, value in values if value is not None]
    return [entry for _, entry in sorted(known, key=lambda pair: pair[0])]


def verdict(results: Results) -> Verdict:
    """Return the verdict for a results file.

    An advantage is claimed where `compare_arms` finds one; what the file holds of it is read, an older file's is
    computed.
    """
    measure, entries = _measure(results), ranked(results)
    if not entries:
        none = f"No run gave a {measure.name} that is a number." if results.rows else "No run has finished yet."
        return Verdict(sentence=none, evidence=_unfinished(results) if results.failed else "")
    best, others = entries[0], entries[1:]
    name, unfinished = best.arm, _unfinished(results)
    if not others:
        sentence = f"{_lost(results)}{name} reached a {measure.name} of {measure.text(best)}."
        return Verdict(sentence=sentence, evidence=unfinished, best=name)
    tested = tests_of(results)
    judged = _judge(name, others, tested.comparisons)
    claimed = {entry.arm for entry, _ in judged.ahead_of}
    lead = f"{_lost(results)}{name} has the {measure.extreme} {measure.name}, {measure.text(best)}"
    return Verdict(
        sentence=_sentence(lead, best, others, judged, measure, tested.significance, repeats(results)[0]),
        evidence=_join(
            tested.significance.sentence or "",
            looks_in_words(results),
            _against_the_baseline(tested.comparisons, name),
            _description(best, others, judged, measure, repeats(results)[0]),
            unfinished,
        ),
        best=name,
        ties=tuple(entry.arm for entry in others if entry.arm not in claimed),
    )


def tests_of(results: Results) -> Conclusions:
    """Return the tests that a results file holds; those of an older file, or of one without all runs, are computed."""
    said = results.significance
    if waiting_runs(results) or not results.comparisons or None in (said.sentence, said.level, said.seeds_needed):
        return compare_arms(results)
    return Conclusions(comparisons=results.comparisons, significance=said)


def _measure(results: Results) -> _Measure:
    return _Measure(
        quality=quality_of(results),
        split=results.split,
        statistic=results.statistic,
        optimistic=is_marked_optimistic(results),
        confidence=confidence_of(results),
    )


def _judge(best: str, others: Sequence[Summary], comparisons: Sequence[Comparison]) -> _Judged:
    judged = _Judged(ahead_of=[], tied=[], identical=[], too_few=[], untested=[], behind=[], lost=[])
    for entry in others:
        found = between(comparisons, best, entry.arm)
        if found is None:
            judged.untested.append(entry)
        elif found.outcome in (BETTER, WORSE):
            (judged.ahead_of if found.outcome == BETTER else judged.behind).append((entry, found))
        elif found.outcome == IDENTICAL:
            judged.identical.append(entry)
        elif found.outcome == NO_CLAIM:
            judged.lost.append((entry, found))
        else:
            (judged.too_few if found.outcome == TOO_FEW else judged.tied).append((entry, found))
    return judged


def _sentence(
    lead: str,
    best: Summary,
    others: Sequence[Summary],
    judged: _Judged,
    measure: _Measure,
    significance: Significance,
    of: str,
) -> str:
    parts: list[str] = []
    if judged.identical:
        column = measure.quality.key
        same = all(entry.columns[column].n == best.columns[column].n for entry in judged.identical)
        parts.append(f"identical on every {'' if same else 'common '}{of} with {_names(judged.identical)}")
    if judged.tied:
        tied = [f"{entry.arm} ({measure.text(entry)}; p = {_p(found)})" for entry, found in judged.tied]
        parts.append(f"not distinguishable from {listed(tied)}")
    if judged.behind:
        parts.append(f"yet behind {_names([entry for entry, _ in judged.behind])} {of} by {of}")
    if judged.ahead_of:
        nearest, *rest = judged.ahead_of
        further = f", and also ahead of {_names([entry for entry, _ in rest])}" if rest else ""
        parts.append(f"{'but ' if parts else ''}{measure.claim(*nearest)}{further}")
    if judged.too_few or (judged.untested and not parts and not judged.lost):
        next_one = judged.too_few[0][0] if judged.too_few else judged.untested[0]
        equal = [entry for entry in others if measure.value(entry) == measure.value(best)]
        shown = f"the same as {_names(equal)}" if equal and not judged.identical else measure.gap(best, next_one)
        parts.append(f"{shown}{_no_claim(judged, significance, of)}")
    if judged.lost:
        over = [f"{entry.arm} ({measure.text(entry)}; p = {_p(found)})" for entry, found in judged.lost]
        why = dict.fromkeys(str(found.lost) for _, found in judged.lost)
        parts.append(f"no claim over {listed(over)}: {listed(list(why))}")
    return f"{lead}, {', '.join(parts)}."


def _no_claim(judged: _Judged, significance: Significance, of: str) -> str:
    if not judged.too_few:
        return ", which was not tested"
    count = max(found.n or 0 for _, found in judged.too_few)
    # that no claim is possible, and why, is the first sentence of the evidence
    return f"; with {count} {of}{'s' * (count != 1)} that is no claim, which takes {significance.seeds_needed}"


def _against_the_baseline(comparisons: Sequence[Comparison], best: str) -> str:
    """Return the outcomes against the baseline, if the family is not all pairs and the best arm is not the baseline."""
    baselines = {entry.against for entry in comparisons}
    if len(comparisons) < 2 or len(baselines) > 1 or best in baselines:
        return ""
    found: dict[str, list[str]] = {}
    for entry in comparisons:
        found.setdefault(entry.outcome, []).append(entry.arm)
    if set(found) <= {TOO_FEW}:
        return ""
    each = "; ".join(f"{outcome}: {listed(arms)}" for outcome, arms in found.items())
    return f"Against the baseline {baselines.pop()}: {each}. Between the other arms nothing was tested."


def _description(best: Summary, others: Sequence[Summary], judged: _Judged, measure: _Measure, of: str) -> str:
    """Return a description of the ranges for few seeds, if nothing can be claimed."""
    if not judged.too_few:
        return ""
    fewest = min(entry.columns[measure.quality.key].n for entry in [best, *others])
    if fewest < SEEDS_FOR_A_SPREAD:
        seeds = f"one {of}" if fewest == 1 else f"{fewest} {of}s"
        return f"With {seeds} per arm there is no spread to judge by: at least {SEEDS_FOR_A_SPREAD} are needed."
    near = [entry for entry, _ in judged.too_few if measure.overlap(best, entry)]
    apart = [entry for entry, _ in judged.too_few if entry not in near]
    start = (DESCRIPTION_OF_MEDIANS if measure.statistic == "median" else DESCRIPTION).format(of=of)
    said = [
        *([f"of {best.arm} and {_names(near)} overlap"] if near else []),
        *([f"of {best.arm} and {_names(apart)} do not overlap"] if apart else []),
    ]
    return f"{start}{', those '.join(said)}."


def _p(found: Comparison) -> str:
    return significant(found.p_adjusted, 2)


def _lost(results: Results) -> str:
    """Return the beginning of the sentence if runs failed or diverged: its numbers are of the others."""
    lost = [f"{arm} lost {gone} of {of}" for arm, (gone, of) in lost_runs(results).items()]
    return f"Of the runs that did not fail or diverge ({', '.join(lost)}), " if lost else ""


def _unfinished(results: Results) -> str:
    if results.complete:
        return ""
    done, planned = len(results.rows), results.planned.runs
    lost = Counter(run.arm for run in results.failed if run.stage == "seeds")
    if not lost and results.merged_from:
        return f"Not every arm was trained on every seed or fold: {done} of {planned} runs are there."
    finished = f"Only {done} of {planned} runs have finished"
    if waiting_runs(results):
        # with a grid, the runs that count may be there while those with other learning rates are not
        finished = f"{finished if done < planned else 'Not every run has finished'}; nothing is tested before all have"
    if not lost:
        return f"{finished}."
    of_arms = listed([f"{arm} ({count})" for arm, count in lost.items()])
    return f"{finished}. Failed, and so in no mean and no test: {of_arms}."


def _names(entries: Sequence[Summary]) -> str:
    return listed([entry.arm for entry in entries])


def _join(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
