"""State the result of a comparison in one sentence, with its evidence."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wordorder.comparison.quality import is_marked_optimistic, quality_of
from wordorder.comparison.report.claims import margin_in_words, on_texts_in_words, p_in_words, size_of
from wordorder.comparison.report.numbers import with_spread
from wordorder.comparison.results_file import Claim, Comparison, Results, Significance, Summary
from wordorder.comparison.statistics.few_seeds import FEWEST_SEEDS
from wordorder.comparison.statistics.looks import looks_in_words
from wordorder.comparison.statistics.outcomes import (
    BETTER,
    IDENTICAL,
    NO_CLAIM,
    NOT_DISTINGUISHABLE,
    TOO_FEW,
    WORSE,
)
from wordorder.comparison.statistics.pareto import listed
from wordorder.comparison.statistics.significance import (
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
from wordorder.tasks.metrics import ACCURACY


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The best arm of a comparison in a sentence, with the evidence for it."""

    sentence: str
    evidence: str
    claims: tuple[str, ...] = ()
    """Claims about new texts, a sentence for each kind that the data allow."""
    best: str | None = None
    ties: tuple[str, ...] = ()
    """Arms over which no advantage of the best is claimed by an exact test: not distinguishable, identical, not
    tested, too few seeds, or more runs lost."""

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The sentence, the claims about new texts, and the evidence; one paragraph where there are no such claims."""
        if not self.claims:
            return (f"{self.sentence} {self.evidence}".strip(),)
        return tuple(part for part in (self.sentence, *self.claims, self.evidence) if part)


class _Measure:
    """The measure of arms in a results file: the metric, its split, and the statistic over seeds."""

    def __init__(self, results: Results) -> None:
        self.quality, self.statistic = quality_of(results), results.statistic
        self.confidence = confidence_of(results)
        median = "median " if results.statistic == "median" else ""
        optimistic = "optimistic " if is_marked_optimistic(results) else ""
        self.name = f"{median}{optimistic}{results.split} {self.quality.name}"

    def value(self, entry: Summary) -> float | None:
        return centre(entry.columns.get(self.quality.key), self.statistic)

    def text(self, entry: Summary) -> str:
        return with_spread(entry.columns[self.quality.key], self.quality.digits, self.statistic)

    def direction(self, measure: str) -> str:
        """Return the words for a better value of a measure, the headline metric or another."""
        if measure.startswith("log "):
            return "times lower"
        higher = self.quality.higher_is_better if measure == self.quality.name else measure == ACCURACY.name
        return "above" if higher else "below"

    def overlap(self, one: Summary, other: Summary) -> bool:
        (low, high), (other_low, other_high) = (
            spread(entry.columns[self.quality.key], self.statistic) or (0.0, 0.0) for entry in (one, other)
        )
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
        interval = ""
        if found.low is not None:
            interval = f"{100 * self.confidence:.3g}% interval {show(found.low)} to {show(found.high)}, "
        return f"{size} {other.arm} ({self.text(other)}; {interval}{p_in_words(found)}, n = {found.n})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """The best arm, and those behind it by the outcomes of their tests; all in order of rank."""

    best: Summary
    others: Sequence[Summary]
    tested: Mapping[str, Sequence[tuple[Summary, Comparison]]]
    """Outcome of the best arm's test against others -> these; worse pair by pair is possible, and rare."""
    measure: _Measure
    of: str
    """Unit of the spread: "seed" or "fold"."""

    def having(self, outcome: str) -> Sequence[tuple[Summary, Comparison]]:
        return self.tested.get(outcome, ())


def ranked(results: Results) -> list[Summary]:
    """Return the summary's entries that have the headline metric, best first."""
    measure = _Measure(results)
    values = [(entry, measure.value(entry)) for entry in results.summary]
    sign = -1 if measure.quality.higher_is_better else 1
    known = [(sign * value, entry) for entry, value in values if value is not None]
    return [entry for _, entry in sorted(known, key=lambda pair: pair[0])]


def verdict(results: Results) -> Verdict:
    """Return the verdict for a results file.

    An advantage is claimed where `compare_arms` finds one; what the file holds of it is read, an older file's is
    computed.
    """
    measure, entries, unfinished = _Measure(results), ranked(results), _unfinished(results)
    if not entries:
        none = f"No run gave a {measure.name} that is a number." if results.rows else "No run has finished yet."
        return Verdict(sentence=none, evidence=unfinished if results.failed else "")
    best, *others = entries
    name, lost = best.arm, _lost(results)
    if not others:
        sentence = f"{lost}{name} reached a {measure.name} of {measure.text(best)}."
        return Verdict(sentence=sentence, evidence=unfinished, best=name)
    conclusions = tests_of(results)
    comparisons, significance = conclusions.comparisons, conclusions.significance
    tested: dict[str, list[tuple[Summary, Comparison]]] = {}
    for entry in others:
        found = between(comparisons, name, entry.arm)
        if found is not None:
            known = found.outcome in (BETTER, WORSE, IDENTICAL, TOO_FEW, NO_CLAIM)
            tested.setdefault(found.outcome if known else NOT_DISTINGUISHABLE, []).append((entry, found))
    judged = _Judged(best=best, others=others, tested=tested, measure=measure, of=repeats(results)[0])
    claimed = {entry.arm for entry, _ in judged.having(BETTER)}
    extreme = "highest" if measure.quality.higher_is_better else "lowest"
    lead = f"{lost}{name} has the {extreme} {measure.name}, {measure.text(best)}"
    evidence = (
        significance.sentence or "",
        looks_in_words(results),
        _against_the_baseline(comparisons, name),
        _description(judged),
        unfinished,
    )
    return Verdict(
        sentence=f"{lead}, {', '.join(_standing(judged, significance))}.",
        evidence=" ".join(part for part in evidence if part),
        claims=on_texts_in_words(
            name,
            {entry.arm: found for entry in others if (found := between(comparisons, name, entry.arm)) is not None},
            measure.confidence,
            measure.direction,
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


def _standing(judged: _Judged, significance: Significance) -> list[str]:
    """Return what is said of the arms behind the best one, in the order of the sentence."""
    best, measure, of, parts = judged.best, judged.measure, judged.of, list[str]()
    if identical := [entry for entry, _ in judged.having(IDENTICAL)]:
        column = measure.quality.key
        same = all(entry.columns[column].n == best.columns[column].n for entry in identical)
        parts.append(f"identical on every {'' if same else 'common '}{of} with {_names(identical)}")
    if tied := judged.having(NOT_DISTINGUISHABLE):
        parts.append(f"not distinguishable from {_with_p(tied, measure)}")
    if behind := judged.having(WORSE):
        parts.append(f"yet behind {_names([entry for entry, _ in behind])} {of} by {of}")
    if ahead_of := judged.having(BETTER):
        nearest, *rest = ahead_of
        further = f", and also ahead of {_names([entry for entry, _ in rest])}" if rest else ""
        parts.append(f"{'but ' if parts else ''}{measure.claim(*nearest)}{further}")
    too_few, lost = judged.having(TOO_FEW), judged.having(NO_CLAIM)
    modelled = [(entry, found.retrained) for entry, found in too_few if found.retrained is not None]
    if modelled:
        first, *rest = _by_welch(judged, modelled)
        parts += [f"and {first}" if judged.having(BETTER) else first, *rest]
    elif too_few or not (parts or lost):
        tested = {entry.arm for own in judged.tested.values() for entry, _ in own}
        next_one = too_few[0][0] if too_few else next(entry for entry in judged.others if entry.arm not in tested)
        equal = [entry for entry in judged.others if measure.value(entry) == measure.value(best)]
        shown = f"the same as {_names(equal)}" if equal and not identical else measure.gap(best, next_one)
        if too_few:
            count = max(found.n or 0 for _, found in too_few)
            # that no claim is possible, and why, is the first sentence of the evidence
            seeds = f"{count} {of}{'s' * (count != 1)}"
            needed = f", which takes {significance.seeds_needed}"
            if count < FEWEST_SEEDS and of == "seed" and measure.statistic == "mean":
                needed = f" about retraining, which takes {FEWEST_SEEDS}"
            parts.append(f"{shown}; with {seeds} that is no claim{needed}")
        else:
            parts.append(f"{shown}, which was not tested")
    if lost:
        why = dict.fromkeys(str(found.lost) for _, found in lost)
        parts.append(f"no claim over {_with_p(lost, measure)}: {listed(list(why))}")
    return parts


def _by_welch(judged: _Judged, modelled: Sequence[tuple[Summary, Claim]]) -> list[str]:
    """Return what Welch's test says where seeds are too few for an exact one."""
    measure = judged.measure
    ratio, direction = measure.quality.key == "perplexity", measure.direction(measure.quality.name)

    def shown(own: Sequence[tuple[Summary, Claim]]) -> str:
        return listed([f"{entry.arm} ({measure.text(entry)}; {p_in_words(claim)})" for entry, claim in own])

    def having(outcome: str) -> list[tuple[Summary, Claim]]:
        return [(entry, claim) for entry, claim in modelled if claim.outcome == outcome]

    parts: list[str] = []
    same = [(entry, claim) for entry, claim in having(NOT_DISTINGUISHABLE) if claim.same]
    tied = [(entry, claim) for entry, claim in having(NOT_DISTINGUISHABLE) if not claim.same]
    if same:
        within = margin_in_words(same[0][1], ratio=ratio)
        parts.append(f"the same within {within} as {_names([entry for entry, _ in same])}")
    if tied:
        parts.append(f"not told apart from {shown(tied)}")
    if worse := having(WORSE):
        parts.append(f"yet behind {shown(worse)}")
    if better := having(BETTER):
        (nearest, claim), *rest = better
        gap, evidence = size_of(claim, ratio=ratio, direction=direction, confidence=measure.confidence)
        than = "than " if ratio else ""
        further = f" and ahead of {_names([entry for entry, _ in rest])}" if rest else ""
        shown_size = f"{gap} {than}{nearest.arm} ({measure.text(nearest)}; {evidence}){further}"
        parts.append(f"{'but ' if parts else ''}{shown_size}")
    if lost := having(NO_CLAIM):
        parts.append(f"not claimed to be ahead of {shown(lost)}: {listed(sorted({str(c.lost) for _, c in lost}))}")
    corrected = " with Holm's correction" if len(modelled) > 1 else ""
    # how many seeds an exact test takes is in the first sentence of the evidence
    parts.append(f"retrained on these texts, by Welch's test{corrected}, which assumes roughly normal {judged.of}s")
    return parts


def _with_p(entries: Sequence[tuple[Summary, Comparison]], measure: _Measure) -> str:
    return listed([f"{entry.arm} ({measure.text(entry)}; {p_in_words(found)})" for entry, found in entries])


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


def _description(judged: _Judged) -> str:
    """Return a description of the ranges for few seeds, if nothing can be claimed."""
    best, measure, of = judged.best, judged.measure, judged.of
    too_few = [entry for entry, found in judged.having(TOO_FEW) if found.retrained is None]
    if not too_few:
        return ""
    fewest = min(entry.columns[measure.quality.key].n for entry in [best, *judged.others])
    if fewest < SEEDS_FOR_A_SPREAD:
        seeds = f"one {of}" if fewest == 1 else f"{fewest} {of}s"
        return f"With {seeds} per arm there is no spread to judge by: at least {SEEDS_FOR_A_SPREAD} are needed."
    near = [entry for entry in too_few if measure.overlap(best, entry)]
    apart = [entry for entry in too_few if entry not in near]
    said = [
        *([f"of {best.arm} and {_names(near)} overlap"] if near else []),
        *([f"of {best.arm} and {_names(apart)} do not overlap"] if apart else []),
    ]
    ranges = f"from the lowest to the highest {of}"
    if measure.statistic != "median":
        ranges = f"mean plus and minus one sample standard deviation over the {of}s"
    return f"As a description, not a claim: the ranges, {ranges}, {', those '.join(said)}."


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
