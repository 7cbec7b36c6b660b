"""Test which differences between arms are larger than their seeds explain by chance.

docs/statistics.md says what is tested, why, and what few seeds cannot show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from wordorder.comparison.results_file import Claim, Comparison, Results, Row, Significance
from wordorder.comparison.statistics.claims import BOTH, NEW_TEXTS, Kept, on_texts
from wordorder.comparison.statistics.seeds import (
    IDENTICAL,
    NOT_DISTINGUISHABLE,
    NOT_TESTED,
    SAME,
    LostRuns,
    SeedTest,
    claimed_outcome,
    compare_folds,
    compare_seeds,
    seeds_to_test,
    seeds_without_floor,
)
from wordorder.comparison.statistics.summary import METRICS, Rows, Unit, baseline_of, by_run, repeats, scale_of
from wordorder.tasks import TASKS

LOST_RULE = (
    "A lost run counts as the worst score of any run; on new texts no model is called better than one that lost a "
    "smaller share of its runs."
)
LOST_RULE_OF_FOLDS = "No model is called better than one that lost a smaller share of its runs."
_EPSILON = 1e-12  # 1 - 0.95 is a little more than 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusions:
    """The tests of the differences, as results.json holds them."""

    comparisons: tuple[Comparison, ...]
    significance: Significance


def compare_arms(results: Results, kept: Kept | None = None) -> Conclusions:
    """Test the differences between the arms of a results file.

    The family of comparisons is all pairs of arms; where the recipe sets compare.baseline, every arm with that one
    alone. The test is `seeds.compare_seeds`, or `compare_folds` of the means over the seeds of each fold. Beside it
    there are `claims`; not with folds, or where medians are reported. Nothing is tested before every planned run has
    ended: else each file that is written meanwhile would be a look of its own.

    A run that failed or diverged counts as the worst score of any. With folds, and on new texts, lost runs are left
    out, and where the arm ahead lost a larger share the outcome is "no claim", and `lost` says why. An arm that lost
    all its runs is not tested.

    Args:
        results: the file.
        kept: scores of the runs by arm, seed and unit of the texts; None: nothing is said about new texts.
    """
    scale, lost, (of, _) = scale_of(results), lost_runs(results), repeats(results)
    rows = dict[str, Rows]()
    for arm, every in by_run(results).items():
        if finished := {unit: row for unit, row in every.items() if scale.value(row) is not None}:
            rows[arm] = finished
    scores = {arm: scale.scores(finished) for arm, finished in rows.items()}
    pairs, baseline = _family(results, [] if waiting_runs(results) else list(rows))
    if of == "fold":
        tests = compare_folds(scores, pairs, level=scale.level, margin=scale.margin)
        counts = {pair: len(scores[pair[0]].keys() & scores[pair[1]].keys()) for pair in pairs}
    else:
        runs = _with_lost_runs(scores, lost)
        tests = compare_seeds(runs, pairs, level=scale.level, margin=scale.margin)
        counts = {pair: min(len(runs[arm]) for arm in pair) for pair in pairs}
    identical = {pair for pair in pairs if are_identical(*(rows[arm] for arm in pair))}
    on_new_texts = _on_texts(results, [pair for pair in pairs if pair not in identical], rows, kept)
    comparisons = list[Comparison]()
    for arm, against in pairs:
        entry = Comparison(
            arm=arm,
            against=against,
            scale="log" if scale.logarithmic else "difference",
            n=counts[arm, against],
            difference=fmean(scores[arm].values()) - fmean(scores[against].values()),
            outcome=IDENTICAL if (arm, against) in identical else NOT_TESTED,
        )
        if (test := tests.get((arm, against))) is not None:
            entry = entry.having(**_judged(entry, test, results, pairs))
        beside = {kind: claims[arm, against] for kind, claims in on_new_texts.items() if (arm, against) in claims}
        comparisons.append(entry.having(**beside))
    methods = list(dict.fromkeys(test.method for test in tests.values()))
    correction = "Shaffer's method" if baseline is None else "Holm's method"
    significance = Significance(
        test=" and ".join(methods) or f"no test with so few {of}s",
        correction=correction if len(pairs) > 1 else "none: there is one comparison",
        family="all pairs of arms" if baseline is None else f"every other arm against the baseline {baseline}",
        level=scale.level,
        seeds=max(counts.values(), default=0),
        seeds_needed=seeds_to_test(scale.level),
    )
    sentence = tests_in_words(results, comparisons, significance)
    return Conclusions(comparisons=tuple(comparisons), significance=significance.having(sentence=sentence))


def _with_lost_runs(scores: Mapping[str, Mapping[int | str, float]], lost: LostRuns) -> dict[str, list[float]]:
    worst = min((score for of_arm in scores.values() for score in of_arm.values()), default=0.0)
    return {arm: [*of_arm.values(), *[worst] * lost.get(arm, (0, 0))[0]] for arm, of_arm in scores.items()}


def _judged(entry: Comparison, test: SeedTest, results: Results, pairs: Sequence[tuple[str, str]]) -> dict[str, object]:
    scale, lost = scale_of(results), lost_runs(results)
    values: dict[str, object] = {"test": test.method, "margin": scale.margin}
    values |= {name: getattr(test, name) for name in ("difference", "low", "high", "p", "p_adjusted")}
    if test.p_same is not None:
        values["p_same"] = test.p_same
    if entry.outcome == IDENTICAL:
        return values
    of, _ = repeats(results)
    if test.p_adjusted <= scale.level + _EPSILON:
        # with folds a lost run is left out, so the arm ahead must not have lost more
        outcome, why = claimed_outcome(entry.arm, entry.against, test.difference, lost if of == "fold" else {})
        return {**values, "outcome": outcome, **({} if why is None else {"lost": why})}
    as_many_lost = lost.get(entry.arm) == lost.get(entry.against)
    if test.p_same is not None and test.p_same <= scale.level + _EPSILON and as_many_lost:
        return {**values, "outcome": SAME}
    if test.noisiest is not None:
        seen = [value for row in by_run(results)[test.noisiest].values() if (value := scale.value(row)) is not None]
        enough = seeds_without_floor(len(pairs), scale.level, folds=of == "fold")
        values["why"] = (
            f"runs of {test.noisiest} differ by {max(seen) - min(seen):.2g}; with {enough} {of}s each pair is judged "
            "on its own"
        )
    return {**values, "outcome": NOT_DISTINGUISHABLE}


def tests_in_words(results: Results, comparisons: Sequence[Comparison], significance: Significance) -> str:
    """Explain how the differences were tested, and the limits of the p-values."""
    of = repeats(results)[0]
    tested = [_test_in_words(comparisons, significance, of), *_cautions(results, of)] if comparisons else []
    rule = LOST_RULE_OF_FOLDS if of == "fold" else LOST_RULE
    parts = (
        *(tested or [_without_baseline(results)]),
        _without_number(results),
        rule if lost_runs(results) and comparisons else "",
    )
    return " ".join(part for part in parts if part)


def _without_baseline(results: Results) -> str:
    baseline = baseline_of(results)
    ended = ended_runs(results).get(str(baseline), {})
    if not results.compare.baseline or waiting_runs(results) or not ended or not all(ended.values()):
        return ""
    return f"The baseline {baseline} lost all its runs, so that nothing was tested."


def _test_in_words(comparisons: Sequence[Comparison], significance: Significance, of: str) -> str:
    count, seeds, baselines = len(comparisons), significance.seeds or 0, {entry.against for entry in comparisons}
    if all(entry.test is None for entry in comparisons):
        return f"{seeds} {of}{'s are' if seeds != 1 else ' is'} too few: a test needs {significance.seeds_needed}."
    family = f"every other model against {baselines.pop()}" if len(baselines) == 1 else "all pairs of models"
    corrected = f", corrected for {family} ({count}) by {significance.correction}" if count > 1 else ""
    at = f"{100 * (significance.level or 0.05):.3g}%"
    return f"Significant: at the {at} level, by {significance.test} over {seeds} {of}s{corrected}."


def _on_texts(
    results: Results, pairs: Sequence[tuple[str, str]], rows: Mapping[str, Rows], kept: Kept | None
) -> dict[str, dict[tuple[str, str], Claim]]:
    scale = scale_of(results)
    if scale.median or repeats(results)[0] == "fold" or not kept:
        return {}
    seeds = {arm: {seed for _, seed in finished} for arm, finished in rows.items()}
    finished = {arm: {seed: own for seed, own in kept.get(arm, {}).items() if seed in seeds[arm]} for arm in rows}
    measure = TASKS[results.task].unit_measure if results.task in TASKS else "loss"
    claims = on_texts(finished, pairs, scale, lost_runs(results), task_measure=measure)
    return dict(zip((NEW_TEXTS, BOTH), claims, strict=True))


def waiting_runs(results: Results) -> int:
    """Return the number of runs of a comparison that have not ended."""
    return 0 if results.complete else results.waiting


def lost_runs(results: Results) -> dict[str, tuple[int, int]]:
    """Return by arm the number of runs that were lost, and of those that ended; only arms that lost any.

    A run is lost where it failed, or where its headline metric is not a number, as after a loss that diverged.
    """
    return {arm: (sum(own.values()), len(own)) for arm, own in ended_runs(results).items() if any(own.values())}


def ended_runs(results: Results) -> dict[str, dict[Unit, bool]]:
    """Return by arm the runs that ended, and whether each was lost."""
    scale = scale_of(results)
    rows = {arm: {unit: scale.value(row) is None for unit, row in own.items()} for arm, own in by_run(results).items()}
    for run in results.failed:
        if run.stage == "seeds":
            rows.setdefault(run.arm, {}).setdefault((run.fold, run.seed), True)
    return rows


def between(comparisons: Sequence[Comparison], arm: str, against: str) -> Comparison | None:
    """Return the comparison of two arms seen from the first, in whatever order the file has it; None without one."""
    for entry in comparisons:
        if (entry.arm, entry.against) == (arm, against):
            return entry
        if (entry.arm, entry.against) == (against, arm):
            claims = {kind: getattr(entry, kind) for kind in (NEW_TEXTS, BOTH)}
            turned = {kind: claim.reversed() for kind, claim in claims.items() if claim is not None}
            return entry.reversed().having(arm=arm, against=against, **turned)
    return None


def _family(results: Results, arms: Sequence[str]) -> tuple[list[tuple[str, str]], str | None]:
    """Return the pairs (arm, against) that are compared, and the arm that all others are compared with, if it is one.

    A false claim among them has at most the probability of the level.
    """
    baseline = baseline_of(results)
    ordered = sorted(arms, key=lambda name: name != baseline)
    if results.compare.baseline:  # one that lost all its runs is compared with none: the family was chosen before
        return [(arm, str(baseline)) for arm in ordered[1:]] if baseline in arms else [], baseline
    return [(arm, against) for against, arm in combinations(ordered, 2)], None


def _without_number(results: Results) -> str:
    """Return a sentence on the arms with runs that are in no test: a mean over the other runs flatters them."""
    scale = scale_of(results)
    counts = {arm: [scale.value(row) is None for row in rows.values()] for arm, rows in by_run(results).items()}
    lost = ", ".join(f"{arm} ({sum(none)} of {len(none)})" for arm, none in counts.items() if any(none))
    name = scale.quality.name
    return (
        f"Trainings whose {name} is not a number, as of a loss that diverged, are in no mean: {lost}." if lost else ""
    )


def _cautions(results: Results, of: str) -> list[str]:
    cautions: list[str] = []
    if results.optimistic:
        cautions.append(
            "Checkpoints or learning rates were chosen on the very texts that are scored: a difference may be that of "
            "the choice and need not be found again on other texts."
        )
    if of == "fold" and results.recipe.data.get("fold_kind") != "independent":
        cautions.append("Folds share training texts, so that the p-values are approximate.")
    return cautions


MEASURED = ("loss", "validation_loss", "parameters", *METRICS, *(f"validation_{name}" for name in METRICS))
"""Numbers that, beside the curve, two trainings of one network with one seed agree on to the last bit; time and memory
differ."""


def are_identical(one: Mapping[Unit, Row], other: Mapping[Unit, Row]) -> bool:
    """Tell whether two arms have the same numbers on every seed (and fold) that both were trained with.

    Every score, point of the curve and number of parameters must agree bit by bit: an accuracy alone agrees by chance
    on a small test set.
    """

    def measured(row: Row) -> list[object]:
        return [row.curve, *(row.score(name) for name in MEASURED)]

    shared = one.keys() & other.keys()
    return bool(shared) and all(measured(one[unit]) == measured(other[unit]) for unit in shared)
