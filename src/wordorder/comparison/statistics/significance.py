"""Test which differences between arms are larger than their seeds explain by chance.

Arms that were trained with one seed share the order of the batches, the masks and the initial weights that they have in
common, so they are compared pair by pair. docs/statistics.md says what is tested, why, and what few seeds cannot show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations

from wordorder.comparison.quality import METRICS
from wordorder.comparison.results_file import Claim, Comparison, Results, Row, Significance
from wordorder.comparison.statistics import exact_tests, outcomes
from wordorder.comparison.statistics.claims import BOTH, NEW_TEXTS, RETRAINED, Kept, on_texts, retrained
from wordorder.comparison.statistics.intervals import (
    Size,
    paired_mean,
    paired_median,
    partly_paired,
    unpaired_mean,
    unpaired_median,
)
from wordorder.comparison.statistics.summary import Rows, Scale, Unit, baseline_of, by_run, repeats, scale_of
from wordorder.tasks import TASKS

LOST_RULE = (
    "Exact tests rank a lost run below every other; by the other tests no model is called better than one that lost a "
    "smaller share of its runs."
)
LOST_RULE_OF_FOLDS = "No model is called better than one that lost a smaller share of its runs."
SEEDS_TO_RANK = 3
"""Number of seeds on which three arms that are ranked alike are called different at 5%; on two they cannot be."""
_EPSILON = 1e-12  # 1 - 0.95 is a little more than 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusions:
    """The tests of the differences, as results.json holds them."""

    comparisons: tuple[Comparison, ...]
    significance: Significance


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Two arms whose difference was tested, before the correction."""

    arm: str
    against: str
    paired: bool
    n: int
    """Number of pairs; of arms without a common seed the runs of the one that has fewer."""
    size: Size
    p: float
    least: float
    """The smallest p-value that so many runs can give."""
    ahead: float | None = None
    """Above 0 where the arm is better by the ranks of its runs, lost ones last; None: no run of the two was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """The runs that are compared, by arm and unit."""

    rows: Mapping[str, Rows]
    """Those with a number; only arms that have any."""
    ended: Mapping[str, Mapping[Unit, bool]]
    scale: Scale

    def lost_last(self, arm: str) -> dict[int | str, float]:
        """Return the score of each seed of an arm; that of a lost run is below every other."""
        lost: dict[int | str, float] = {seed: -math.inf for (_, seed), gone in self.ended[arm].items() if gone}
        return {**lost, **self.scale.scores(self.rows[arm])}


def compare_arms(results: Results, kept: Kept | None = None) -> Conclusions:
    """Test the differences between the arms of a results file.

    The family of comparisons is all pairs of arms; where the recipe sets compare.baseline, every arm with that one
    alone, which needs fewer seeds. Arms are paired by seed, or by fold, the seeds of one fold averaged first; two arms
    without a common seed are compared as independent groups. The test is `exact_tests.paired_p` of the mean difference
    (of ranks where the file reports medians), corrected over the family by `closed_p`, or by Holm's method for very
    many arms and for arms without common seeds. Beside it there are `claims`; not with folds, or where medians are
    reported.

    Nothing is tested before every planned run has ended: else each of the files that are written meanwhile would be a
    look of its own.

    Where a run failed or diverged, the two arms are tested by ranks, a lost run below every other. With folds, and in
    the tests that have no ranks, lost runs are left out, and an arm is not called better than one that lost a smaller
    share: the outcome is then "no claim", and `lost` says why.

    Args:
        results: the file.
        kept: scores of the runs by arm, seed and unit of the texts; None: nothing is said about new texts.
    """
    scale, ended = scale_of(results), ended_runs(results)
    rows = {
        arm: {unit: row for unit, row in own.items() if not ended[arm][unit]} for arm, own in by_run(results).items()
    }
    runs = _Runs(rows={arm: own for arm, own in rows.items() if own}, ended=ended, scale=scale)
    pairs, baseline = _family(results, [] if waiting_runs(results) else list(runs.rows))
    found = [_compared(arm, against, runs) for arm, against in pairs]
    correction, share, p_values = _corrected(pairs, baseline, found, runs)
    lost, comparisons = lost_runs(results), list[Comparison]()
    identical = {pair for pair in pairs if are_identical(*(runs.rows[arm] for arm in pair))}
    claims = _claims(results, [pair for pair in pairs if pair not in identical], runs, kept)
    for names, pair, corrected in zip(pairs, found, p_values, strict=True):
        why = None
        if names in identical:
            outcome = outcomes.IDENTICAL
        elif corrected <= scale.level + _EPSILON:
            outcome, why = _claimed(pair, lost)
        else:
            outcome = outcomes.TOO_FEW if pair.least > scale.level * share + _EPSILON else outcomes.NOT_DISTINGUISHABLE
        entry = Comparison(
            arm=pair.arm,
            against=pair.against,
            paired=pair.paired,
            scale="log" if scale.logarithmic else "difference",
            n=pair.n,
            **asdict(pair.size),
            p=pair.p,
            p_adjusted=corrected,
            outcome=outcome,
        )
        beside = {kind: own[names] for kind, own in claims.items() if names in own}
        comparisons.append(entry.having(**({} if why is None else {"lost": why}), **beside))
    of, seeds = repeats(results)[0], max((pair.n for pair in found), default=0)
    paired = any(pair.paired for pair in found) or (not found and scale.paired)
    exact = "exact" if seeds <= exact_tests.EXACT_PAIRS else "Monte Carlo"
    test = f"{exact} {'signed-rank' if scale.median else 'sign-flip'} test of {scale.measure} paired by {of}"
    if not paired:
        whose = f"without a {of} in common" if scale.paired else "as independent groups"
        test = f"{exact} permutation test of {scale.measure} between arms {whose}"
    groups = ("paired differences", "matched pairs") if paired else ("two groups", "groups")
    significance = Significance(
        test=test,
        correction=correction,
        family="all pairs of arms" if baseline is None else f"every other arm against the baseline {baseline}",
        effect=f"rank correlation of {groups[1]}" if scale.median else f"Hedges' g of {groups[0]}",
        level=scale.level,
        seeds=seeds,
        seeds_needed=exact_tests.seeds_needed(scale.level + _EPSILON, share=share, paired=paired),
    )
    sentence = tests_in_words(results, comparisons, significance)
    return Conclusions(comparisons=tuple(comparisons), significance=significance.having(sentence=sentence))


def tests_in_words(results: Results, comparisons: Sequence[Comparison], significance: Significance) -> str:
    """Explain how the differences were tested, and the limits of the p-values."""
    of = repeats(results)[0]
    parts = (
        _test_in_words(comparisons, significance, of) or _without_baseline(results),
        *_cautions(results, comparisons, of),
        _without_number(results),
        (LOST_RULE_OF_FOLDS if of == "fold" else LOST_RULE) if lost_runs(results) and comparisons else "",
    )
    return " ".join(part for part in parts if part)


def _without_baseline(results: Results) -> str:
    """Return a sentence where the arm that all others were to be compared with has no run."""
    baseline = baseline_of(results)
    if not results.compare.baseline or waiting_runs(results) or baseline is None:
        return ""
    ended = ended_runs(results).get(baseline, {})
    return (
        ""
        if not ended or not all(ended.values())
        else f"The baseline {baseline} lost all its runs, so that nothing was tested."
    )


def _test_in_words(comparisons: Sequence[Comparison], significance: Significance, of: str) -> str:
    if not comparisons:
        return ""
    count, seeds, baselines = len(comparisons), significance.seeds or 0, {entry.against for entry in comparisons}
    test, at = significance.test or "", f"{100 * (significance.level or 0.05):.3g}%"
    needs = f"It needs at least {significance.seeds_needed} {of}s."
    family = f"every other model against {baselines.pop()}" if len(baselines) == 1 else "all pairs of models"
    if any(entry.outcome != outcomes.TOO_FEW for entry in comparisons):
        corrected = f", corrected for {family} ({count}) by {significance.correction}" if count > 1 else ""
        article = "an" if test.startswith("exact") else "a"
        return f"Significant: at the {at} level, by {article} {test}{corrected}. {needs}"
    paired = any(entry.paired for entry in comparisons)
    least = exact_tests.smallest_p(seeds) if paired else exact_tests.smallest_unpaired_p(seeds, seeds)
    before = f" before the correction for {family} ({count})" if count > 1 else ""
    return (
        f"{seeds} {of}{'s are' if seeds != 1 else ' is'} too few for the {test}: its p-value cannot be below "
        f"{least:.3g}{before}, and significant is at the {at} level. {needs}"
    )


def _claims(
    results: Results, pairs: Sequence[tuple[str, str]], runs: _Runs, kept: Kept | None
) -> dict[str, dict[tuple[str, str], Claim]]:
    scale, lost = runs.scale, lost_runs(results)
    if scale.median or repeats(results)[0] == "fold":
        return {}
    scores = {arm: scale.scores(rows) for arm, rows in runs.rows.items()}
    found = {RETRAINED: retrained(scores, pairs, scale, lost)}
    if kept:
        there = {arm: {seed: own for seed, own in kept.get(arm, {}).items() if seed in scores[arm]} for arm in scores}
        measure = TASKS[results.task].unit_measure if results.task in TASKS else "loss"
        found[NEW_TEXTS], found[BOTH] = on_texts(there, pairs, scale, lost, task_measure=measure)
    return found


def _claimed(pair: _Pair, lost: outcomes.LostRuns) -> tuple[str, str | None]:
    if pair.ahead is None:  # with folds a lost run is left out, so the arm ahead must not have lost more
        return outcomes.claimed_outcome(pair.arm, pair.against, pair.size.difference, lost)
    if pair.ahead * pair.size.difference >= 0:  # equal means point to nobody else
        return (outcomes.BETTER if pair.ahead > 0 else outcomes.WORSE), None
    ahead, behind = (pair.arm, pair.against) if pair.size.difference > 0 else (pair.against, pair.arm)
    if ahead in lost:
        gone, of = lost[ahead]
        return outcomes.NO_CLAIM, f"{ahead} lost {gone} of {of} runs"
    return outcomes.NO_CLAIM, f"{behind} is ahead by ranks, with lost runs last"


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
            claims = {kind: getattr(entry, kind) for kind in (RETRAINED, NEW_TEXTS, BOTH)}
            turned = {kind: claim.reversed() for kind, claim in claims.items() if claim is not None}
            effect = None if entry.effect is None else 0.0 - entry.effect
            return entry.reversed().having(arm=arm, against=against, effect=effect, **turned)
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


def _corrected(
    pairs: list[tuple[str, str]], baseline: str | None, found: Sequence[_Pair], runs: _Runs
) -> tuple[str, float, list[float]]:
    """Return the name of the correction, the share of the level that one pair is tested at, and the p-values."""
    p_values = [pair.p for pair in found]
    if len(found) < 2:
        return "none: there is one comparison", 1.0, p_values
    folds = any(fold is not None for rows in runs.rows.values() for fold, _ in rows)
    scores = {arm: runs.scale.scores(own) if folds else runs.lost_last(arm) for arm, own in runs.rows.items()}
    units = [own.keys() for own in scores.values()]
    common = len(set(units[0]).intersection(*units))
    # Sets of arms are ranked within each seed, so all arms must share seeds; and there are 2^arms of them. An arm that
    # lost nearly all its seeds must not take the claims of pairs along that share more.
    if (
        len(scores)
        > (exact_tests.MOST_ARMS_OF_CLOSED_TESTING if baseline is None else exact_tests.MOST_ARMS_AGAINST_A_BASELINE)
        or not all(pair.paired for pair in found)
        or common < min(SEEDS_TO_RANK, max(pair.n for pair in found))
    ):
        return "Holm's method", 1 / len(found), exact_tests.holm(p_values)
    corrected = exact_tests.closed_p(dict(zip(pairs, p_values, strict=True)), scores, baseline=baseline)
    share = exact_tests.share_of_level(len(scores), baseline=baseline is not None)
    return "closed testing", share, [corrected[pair] for pair in pairs]


def _compared(arm: str, against: str, runs: _Runs) -> _Pair:
    one, other, scale = runs.rows[arm], runs.rows[against], runs.scale
    shared = sorted(one.keys() & other.keys() if scale.paired else (), key=lambda unit: (unit[0] or 0, unit[1]))
    if shared:
        size, p, least, n = _of_pairs(arm, against, shared, runs)
    else:
        first, second = (list(scale.scores(rows).values()) for rows in (one, other))
        size = unpaired_median(first, second) if scale.median else unpaired_mean(first, second, scale.confidence)
        p, n = exact_tests.unpaired_p(first, second, ranks=scale.median), min(len(first), len(second))
        least = exact_tests.smallest_unpaired_p(len(first), len(second))
    ahead = None
    lost = any(gone for name in (arm, against) for gone in runs.ended[name].values())
    if lost and not any(fold is not None for fold, _ in one):
        ahead, p, least, n = _with_lost_last(arm, against, runs, paired=bool(shared))
        size = replace(size, low=None, high=None)  # the interval is another test's, of fewer runs
    return _Pair(arm=arm, against=against, paired=bool(shared), n=n, size=size, p=p, least=least, ahead=ahead)


def _of_pairs(arm: str, against: str, shared: Sequence[Unit], runs: _Runs) -> tuple[Size, float, float, int]:
    """Return the size of a difference over pairs, its p-value, the smallest possible one, and the number of pairs."""
    one, other, scale = runs.rows[arm], runs.rows[against], runs.scale
    mine, theirs = (scale.scores({unit: rows[unit] for unit in shared}) for rows in (one, other))
    differences = [mine[unit] - theirs[unit] for unit in mine]
    # a run whose partner was lost is no run of its own: the partner may have been lost for how it went
    alone, theirs_alone = (
        list(scale.scores({unit: row for unit, row in rows.items() if unit not in runs.ended[rival]}).values())
        for rows, rival in ((one, against), (other, arm))
    )
    n = len(differences)
    if alone and theirs_alone and shared[0][0] is None and not scale.median:
        size, p, least = partly_paired(differences, alone, theirs_alone, scale.confidence)
        return size, p, least, n + min(len(alone), len(theirs_alone))
    size = (paired_median if scale.median else paired_mean)(differences, scale.confidence)
    return size, exact_tests.paired_p(differences, ranks=scale.median), exact_tests.smallest_p(n), n


def _with_lost_last(arm: str, against: str, runs: _Runs, *, paired: bool) -> tuple[float, float, float, int]:
    """Test two arms by ranks, a lost run below every other: above 0 if the first is ahead, p, least p, and n.

    Lachin 1999, "Worst-rank score analysis with informatively missing observations in clinical trials".
    """
    mine, theirs = runs.lost_last(arm), runs.lost_last(against)
    if not paired:
        one, other = list(mine.values()), list(theirs.values())
        wins = float(sum((a > b) - (a < b) for a in one for b in other))
        least = exact_tests.smallest_unpaired_p(len(one), len(other))
        return wins, exact_tests.unpaired_p(one, other, ranks=True), least, min(len(one), len(other))
    both = [(mine[unit], theirs[unit]) for unit in mine if unit in theirs]
    differences = [0.0 if a == b else a - b for a, b in both]  # of two lost runs none is better
    return (
        exact_tests.signed_ranks(differences),
        exact_tests.paired_p(differences, ranks=True),
        exact_tests.smallest_p(len(both)),
        len(both),
    )


def _without_number(results: Results) -> str:
    """Return a sentence on the arms with runs that are in no test: a mean over the other runs flatters them."""
    scale, lost = scale_of(results), list[str]()
    for arm, rows in by_run(results).items():
        if count := sum(scale.value(row) is None for row in rows.values()):
            lost.append(f"{arm} ({count} of {len(rows)})")
    if not lost:
        return ""
    name = scale.quality.name
    return f"Trainings whose {name} is not a number, as of a loss that diverged, are in no mean: {', '.join(lost)}."


def _cautions(results: Results, comparisons: Sequence[Comparison], of: str) -> list[str]:
    if not comparisons:
        return []
    found: list[str] = []
    if any(not entry.paired for entry in comparisons) and any(entry.paired for entry in comparisons):
        found.append(f"Models without a common {of} are compared as independent groups.")
    if results.optimistic:
        found.append(
            "Checkpoints or learning rates were chosen on the very texts that are scored: a difference may be that of "
            "the choice and need not be found again on other texts."
        )
    if of == "fold" and results.recipe.data.get("fold_kind") != "independent":
        found.append("Folds share training texts, so that the p-values are approximate.")
    return found


MEASURED = ("loss", "validation_loss", "parameters", *METRICS, *(f"validation_{name}" for name in METRICS))
"""Numbers that, beside the curve, two trainings of one network with one seed agree on to the last bit; time and memory
differ."""


def are_identical(one: Mapping[Unit, Row], other: Mapping[Unit, Row]) -> bool:
    """Tell whether two arms have the same numbers on every seed (and fold) that both were trained with.

    Every score, every point of the curve and the number of parameters must agree bit by bit: an accuracy alone agrees
    by chance on a small test set. Without a common seed nothing is known, and the answer is no.
    """

    def measured(row: Row) -> list[object]:
        return [row.curve, *(row.score(name) for name in MEASURED)]

    shared = one.keys() & other.keys()
    return bool(shared) and all(measured(one[unit]) == measured(other[unit]) for unit in shared)
