"""State the result of a comparison: first in percent for everybody, then how it was tested."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wordorder.comparison.report.differences import (
    Unit,
    in_parts,
    in_percent,
    listed,
    margin_in_words,
    on_texts_in_words,
    outcome_in_words,
    p_in_words,
    significant,
    unit_of,
    with_spread,
)
from wordorder.comparison.results_file import Comparison, Results, Summary
from wordorder.comparison.statistics import summary
from wordorder.comparison.statistics.curves import HARDLY_BEGUN, STILL_IMPROVING, finished
from wordorder.comparison.statistics.seeds import (
    BETTER,
    IDENTICAL,
    NO_CLAIM,
    NOT_DISTINGUISHABLE,
    NOT_TESTED,
    SAME,
    WORSE,
    claimed_outcome,
)
from wordorder.comparison.statistics.significance import (
    Conclusions,
    between,
    compare_arms,
    lost_runs,
    tests_in_words,
    waiting_runs,
)
from wordorder.comparison.statistics.summary import is_marked_optimistic, looks_in_words, quality_of
from wordorder.tasks.task import ACCURACY

UNEQUAL = 0.01
"""Relative difference of parameters from which on two models are called of unequal size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a comparison in two layers: `headline` for everybody, `method` for those who ask how."""

    sentence: str
    """The best model, its score, and how far it is from the next one and from the baseline."""
    status: str = ""
    """Significance of these differences, or the reason why it was not tested."""
    caveat: str = ""
    """Budgets that were not held equal, and models whose training was too short."""
    evidence: str = ""
    """Tests of the differences, with intervals, p-values and assumptions."""
    claims: tuple[str, ...] = ()
    """Results of the tests on new texts, a sentence for each kind that the data allow."""
    best: str | None = None
    ties: tuple[str, ...] = ()
    """Models over which no advantage of the best is significant."""

    @property
    def headline(self) -> tuple[str, ...]:
        """The first layer, a paragraph each."""
        return tuple(part for part in (self.sentence, " ".join(filter(None, (self.status, self.caveat)))) if part)

    @property
    def method(self) -> tuple[str, ...]:
        """The second layer, a paragraph each."""
        return tuple(part for part in (self.evidence, *self.claims) if part)


class _Measure:
    """The measure of models in a results file: the metric, its split, and the statistic over seeds."""

    def __init__(self, results: Results) -> None:
        self.quality, self.statistic = quality_of(results), results.statistic
        self.confidence = summary.confidence_of(results)
        optimistic = is_marked_optimistic(results)
        split = "" if results.split == "test" and not optimistic else f"{results.split} "
        self.name = f"{'optimistic ' * optimistic}{split}{self.quality.name}"
        self.side = "above" if self.quality.higher_is_better else "below"

    def value(self, entry: Summary) -> float | None:
        return summary.centre(entry.columns.get(self.quality.key), self.statistic)

    def text(self, entry: Summary) -> str:
        return with_spread(entry.columns[self.quality.key], self.quality.digits, self.statistic)

    def short(self, entry: Summary) -> str:
        return self.text(entry).split(" ")[0]

    def direction(self, measure: str) -> str:
        if measure == self.quality.name:
            return self.side
        return "above" if measure == ACCURACY.name else "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """The best model, and those behind it with their tests; all in order of rank."""

    best: Summary
    others: Sequence[Summary]
    found: Mapping[str, Comparison]
    """Other model -> the comparison of the best one with it; a pair outside of the family is not there."""
    measure: _Measure
    of: str
    """Unit of the spread: "seed" or "fold"."""
    seeds: int

    def outcome(self, entry: Summary) -> str | None:
        found = self.found.get(entry.arm)
        outcomes = (BETTER, WORSE, SAME, IDENTICAL, NOT_TESTED, NO_CLAIM)
        return None if found is None else found.outcome if found.outcome in outcomes else NOT_DISTINGUISHABLE

    def having(self, outcome: str | None) -> list[Summary]:
        return [entry for entry in self.others if self.outcome(entry) == outcome]


def ranked(results: Results) -> list[Summary]:
    """Return the summary's entries that have the headline metric, best first."""
    measure = _Measure(results)
    values = [(entry, measure.value(entry)) for entry in results.summary]
    sign = -1 if measure.quality.higher_is_better else 1
    known = [(sign * value, entry) for entry, value in values if value is not None]
    return [entry for _, entry in sorted(known, key=lambda pair: pair[0])]


def verdict(results: Results) -> Verdict:
    """Return the verdict for a results file; a difference is significant where `compare_arms` finds it so."""
    measure, entries, missing = _Measure(results), ranked(results), _missing_runs(results)
    if not entries:
        none = f"No run gave a {measure.name} that is a number." if results.rows else "No run has finished yet."
        return Verdict(sentence=none, status=missing if results.failed else "")
    best, *others = entries
    floor = summary.floor_of(results)
    if floor is not None and not any(floor.is_beaten(measure.value(entry) or 0.0) for entry in entries):
        guess = f"always answering {floor.answer!r} has {measure.name} {floor.share:.4f}"
        sentence = (
            f"No model beats guessing: {guess}, {best.arm}, the best one, {measure.short(best)}. Nobody is ranked."
        )
        return Verdict(sentence=sentence, status=missing)
    name, gone = best.arm, [f"{arm} lost {few} of {of}" for arm, (few, of) in lost_runs(results).items()]
    lost = f"Of the runs that did not fail or diverge ({', '.join(gone)}), " if gone else ""
    if not others:
        return Verdict(sentence=f"{lost}{name}: {measure.name} {measure.text(best)}.", status=missing, best=name)
    conclusions = tests_of(results)
    tested = {
        entry.arm: pair for entry in others if (pair := between(conclusions.comparisons, name, entry.arm)) is not None
    }
    judged = _Judged(
        best=best,
        others=others,
        found=tested,
        measure=measure,
        of=summary.repeats(results)[0],
        seeds=max((pair.n or 0 for pair in tested.values()), default=0),
    )
    waiting = waiting_runs(results) > 0
    flattered = claimed_outcome(name, others[0].arm, 1.0, lost_runs(results))[0] == NO_CLAIM
    evidence = (
        _numbers(judged, unit_of(results.having(comparisons=conclusions.comparisons))),
        tests_in_words(results, conclusions.comparisons, conclusions.significance),
        looks_in_words(results),
        _against_the_baseline(conclusions.comparisons, name),
        _description(judged),
    )
    status = "" if waiting else _status(judged, conclusions)
    return Verdict(
        sentence=lost + _headline(judged, summary.baseline_of(results), waiting=waiting, flattered=flattered),
        status=" ".join(part for part in (status, missing) if part),
        caveat=" ".join(part for part in (unequal_sizes(results, name), unfinished(results, entries)) if part),
        evidence=" ".join(part for part in evidence if part),
        claims=on_texts_in_words(
            name, tested, measure.confidence, measure.direction, corrected=len(conclusions.comparisons) > 1
        ),
        best=name,
        ties=tuple(entry.arm for entry in others if judged.outcome(entry) != BETTER),
    )


def tests_of(results: Results) -> Conclusions:
    """Return the tests that a results file holds; where it has none, or not all runs, they are computed."""
    if waiting_runs(results) or not results.comparisons or results.significance.test is None:
        return compare_arms(results)
    return Conclusions(comparisons=results.comparisons, significance=results.significance)


def _headline(judged: _Judged, baseline: str | None, *, waiting: bool, flattered: bool) -> str:
    """Return the first sentence: "is best" only where the runner-up is not known to be about as good.

    Nor is an untested model called so that lost a larger share of its runs, or is ahead by no more than its runs vary;
    or any model while the test of the seeds finds another better.
    """
    best, measure, runner_up = judged.best, judged.measure, judged.others[0]
    equal = [entry for entry in judged.others if measure.value(entry) == measure.value(best)]
    tied = bool(equal) and judged.outcome(runner_up) != IDENTICAL
    gaps, equal = ([], equal) if tied else ([_gap(judged, runner_up)], [runner_up])
    ahead = judged.having(WORSE)  # by their seeds, whatever the means say
    gaps += [
        _gap(judged, entry)
        for entry in judged.others
        if (entry.arm == baseline or entry in ahead) and entry not in equal
    ]
    outcome = judged.outcome(runner_up)
    clear = not flattered and _apart(measure, best, runner_up)
    leads = not ahead and (outcome == BETTER or (outcome == NOT_TESTED and clear))
    if leads and measure.value(best) != measure.value(runner_up):
        median = "median " * (measure.statistic == "median")
        return f"{best.arm} is best: {median}{measure.name} {measure.short(best)}, {', '.join(gaps)}."
    extreme = "highest" if measure.quality.higher_is_better else "lowest"
    score = f"{extreme} {measure.statistic} {measure.name}, {measure.short(best)}"
    names, verb = (_names([best, *equal]), "share") if tied else (best.arm, "has")
    return f"{names} {'so far ' * waiting}{verb} the {score}{': ' * bool(gaps)}{', '.join(gaps)}."


def _apart(measure: _Measure, best: Summary, runner_up: Summary) -> bool:
    """Tell whether the best of a pilot is ahead by more than its runs vary; of one run nothing is known."""
    columns = [entry.columns[measure.quality.key] for entry in (best, runner_up)]
    if measure.statistic == "median":  # one bad seed, which it does not follow, widens a standard deviation
        ranges = [ends for column in columns if (ends := summary.spread(column, "median")) is not None]
        return len(ranges) == 2 and max(low for low, _ in ranges) > min(high for _, high in ranges)
    widths = [column.std for column in columns if column.std is not None]
    gap = abs((measure.value(best) or 0.0) - (measure.value(runner_up) or 0.0))
    return len(widths) == 2 and gap > max(widths)


def _gap(judged: _Judged, entry: Summary) -> str:
    """Return how far the best model is from another, and if that is not significant."""
    measure, outcome, found = judged.measure, judged.outcome(entry), judged.found.get(entry.arm)
    score = f"{entry.arm} ({measure.short(entry)})"
    if outcome == IDENTICAL:
        return f"identical to {entry.arm} on every common {judged.of}"
    if outcome == WORSE:
        return f"yet {score} is significantly better in the test"
    if measure.value(entry) != measure.value(judged.best) and outcome in (NOT_DISTINGUISHABLE, SAME, NO_CLAIM):
        lost = f", which counts lost runs: {found.lost}" if found is not None and found.lost else ""
        return f"not significantly {measure.side} {score}{lost}"
    untested = " (not tested)" if outcome is None and judged.found else ""
    here, there = measure.value(judged.best) or 0.0, measure.value(entry) or 0.0
    if here == there:
        return f"the same as {entry.arm}{untested}"
    if measure.quality.key == "perplexity" and here > 0:
        return f"{in_percent(100 * (1 - here / there))} below {entry.arm}{untested}"
    return f"{significant(abs(here - there), 2)} {measure.side} {entry.arm}{untested}"


def _status(judged: _Judged, conclusions: Conclusions) -> str:
    of, s, needed = judged.of, "s" * (judged.seeds != 1), conclusions.significance.seeds_needed
    if judged.having(NOT_TESTED) and all(
        judged.outcome(entry) in (NOT_TESTED, IDENTICAL, None) for entry in judged.others
    ):
        return f"Pilot: {judged.seeds} {of}{s}; a test needs {needed}{f': --seeds {needed}' if of == 'seed' else ''}."
    parts: list[str] = []
    how = f" ({conclusions.significance.test})"
    if better := judged.having(BETTER):
        parts.append(f"Significant{how}: better than {_names(better)}.")
        how = ""
    if worse := judged.having(WORSE):
        parts.append(f"{_names(worse)} {'is' if len(worse) == 1 else 'are'} significantly better{how}.")
        how = ""
    if level := judged.having(NOT_DISTINGUISHABLE):
        parts.append(f"Not significant{how} against {_names(level)}.")
        how = ""
        reasons = dict.fromkeys(why for entry in level if (why := judged.found[entry.arm].why))
        parts += [f"{why[:1].upper()}{why[1:]}." for why in reasons]
    if same := judged.having(SAME):
        parts.append(f"The same within {margin_in_words(judged.found[same[0].arm])}{how}: {_names(same)}.")
    for entry in judged.having(NO_CLAIM):
        parts.append(f"Not significant against {entry.arm}: {judged.found[entry.arm].lost}.")
    if identical := judged.having(IDENTICAL):
        parts.append(f"Identical on every common {of}: {_names(identical)}.")
    if few := judged.having(NOT_TESTED):
        parts.append(f"Too few {of}s against {_names(few)}.")
    if untested := judged.having(None):
        parts.append(f"Not tested against {_names(untested)}.")
    return " ".join(parts)


def unfinished(results: Results, entries: Sequence[Summary]) -> str:
    """Return the passes over the training text, and the models whose training was too short; "" if neither is known."""
    judged = {entry.arm: finished(results, entry.arm) for entry in entries}
    parts: list[str] = []
    if (passes := judged[entries[0].arm].passes) is not None:
        parts.append(f"{passes:.2g} pass{'es' * (f'{passes:.2g}' != '1')} over the training text.")
    for state in (HARDLY_BEGUN, STILL_IMPROVING):
        if names := [arm for arm, one in judged.items() if one.state == state]:
            parts.append(f"{state[:1].upper()}{state[1:]}: {listed(names)}.")
    if len(parts) > (passes is not None):
        parts.append("What learns faster is ahead here, and need not be after longer training.")
    return " ".join(parts)


def unequal_sizes(results: Results, best: str) -> str:
    """Return a sentence where the numbers of parameters differ, though nothing or another budget was matched."""
    totals = {arm.name: arm.total_parameters for arm in results.arms}
    known = {name: total for name, total in totals.items() if total}
    if len(known) < 2 or max(known.values()) <= (1 + UNEQUAL) * min(known.values()):
        return ""
    most, least = max(known, key=known.__getitem__), min(known, key=known.__getitem__)

    def more(name: str) -> str:
        return f"{in_percent(100 * (known[name] / known[least] - 1))} more parameters than {least}"

    large = best != most and known.get(best, 0) > (1 + UNEQUAL) * known[least]
    own = f"; {best} has {more(best)}" if large else ""
    match = "none" if results.budget is None else results.budget.match
    begin = "Budgets not matched" if match == "none" else "Parameters not matched"
    return f"{begin}: {most} has {more(most)}{own}."


def _numbers(judged: _Judged, unit: Unit) -> str:
    measure, best, nearest = judged.measure, judged.best, judged.others[0]
    shown = f"{best.arm} {measure.text(best)}, {nearest.arm} {measure.text(nearest)}"
    if "±" in shown:
        shown += f" (mean ± standard deviation over the {judged.of}s)"
    found = judged.found.get(nearest.arm)
    if found is not None and found.difference is not None and found.outcome != IDENTICAL:
        size, tested = in_parts(found, unit)
        interval = f"{100 * measure.confidence:.3g}% interval " * tested.startswith("[")
        shown += f"; difference {size} ({interval}{f'{tested}, ' if tested else ''}n = {found.n})"
    p = [
        f"{entry.arm} {words.removeprefix('p ').removeprefix('= ')}"
        for entry in judged.others[1:]
        if judged.outcome(entry) not in (None, NOT_TESTED, IDENTICAL) and (words := p_in_words(judged.found[entry.arm]))
    ]
    return f"{shown}.{f' p against the others: {listed(p)}.' if p else ''}"


def _against_the_baseline(comparisons: Sequence[Comparison], best: str) -> str:
    """Return the outcomes against the baseline, if the family is not all pairs and the best model is not it."""
    baselines = {entry.against for entry in comparisons}
    if len(comparisons) < 2 or len(baselines) > 1 or best in baselines:
        return ""
    found: dict[str, list[str]] = {}
    for entry in comparisons:
        found.setdefault(outcome_in_words(entry), []).append(entry.arm)
    if all(entry.outcome == NOT_TESTED for entry in comparisons):
        return ""
    each = "; ".join(f"{outcome}: {listed(arms)}" for outcome, arms in found.items())
    return f"Against the baseline {baselines.pop()}: {each}. Other pairs were not tested."


def _description(judged: _Judged) -> str:
    best, measure, of = judged.best, judged.measure, judged.of
    untested = judged.having(NOT_TESTED)
    if not untested:
        return ""
    columns = {entry.arm: entry.columns[measure.quality.key] for entry in [best, *judged.others]}
    fewest, needed = min(column.n for column in columns.values()), summary.SEEDS_FOR_A_SPREAD
    if fewest < needed:
        seeds = f"one {of}" if fewest == 1 else f"{fewest} {of}s"
        return f"With {seeds} per model there is no spread to judge by: at least {needed} are needed."
    ends = {arm: summary.spread(column, measure.statistic) or (0.0, 0.0) for arm, column in columns.items()}
    low, high = ends[best.arm]
    near = [entry for entry in untested if low <= ends[entry.arm][1] and ends[entry.arm][0] <= high]
    apart = [entry for entry in untested if entry not in near]
    ranges = "mean ± 1 standard deviation" if measure.statistic == "mean" else f"lowest to highest {of}"
    parts = [(f"{best.arm} overlaps with", near), (f"{best.arm} does not overlap with", apart)]
    return f"Ranges ({ranges}): {'; '.join(f'{words} {_names(entries)}' for words, entries in parts if entries)}."


def _missing_runs(results: Results) -> str:
    if results.complete:
        return ""
    done, planned = len(results.rows), results.planned.runs
    lost = Counter(run.arm for run in results.failed if run.stage == "seeds")
    finished = f"Only {done} of {planned} runs have finished"
    if waiting_runs(results):
        # with a grid, the runs that count may be there while those with other learning rates are not
        finished = f"{finished if done < planned else 'Not every run has finished'}; nothing is tested before all have"
    if not lost:
        return f"{finished}."
    of_arms = listed([f"{arm} ({count})" for arm, count in lost.items()])
    untested = " and no test" * bool(results.planned.folds)  # tests over seeds count them as the worst
    return f"{finished}. Failed, and so in no mean{untested}: {of_arms}."


def _names(entries: Sequence[Summary]) -> str:
    return listed([entry.arm for entry in entries])
