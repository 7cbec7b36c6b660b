"""Aggregate the scores of arms over several tasks: mean rank, interquartile mean, probability of improvement.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
https://arxiv.org/abs/2108.13264. A task is an array of scores for each arm, higher being better; a lost run is minus
infinity, which is worse than any number and equal to another lost run. Intervals are percentiles of a bootstrap of
runs, and of tasks. **From n runs n - 1 are drawn, and from T tasks T - 1**, where the paper draws as many as there are:
the variance of a mean of n draws is (n - 1) / n of what it should be, and with n - 1 draws it is right (McCarthy and
Snowden 1985, "The bootstrap and finite population sampling"). docs/statistics.md has the coverage of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from wordorder.comparison.statistics import exact_tests as exact

Floats = npt.NDArray[np.float64]
Runs = Sequence[Floats]
"""Scores of one task: for each arm those of its runs."""

REPLICATES = 10_000
"""Number of bootstrap samples; intervals then move by about a hundredth of their width with the seed."""
LEAST_TASKS = 3
"""Smallest number of tasks for which there is an interval over tasks."""
PERMUTATIONS = 19_999
_SEED = 0
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalEstimate:
    """A number with two intervals."""

    value: float
    over_seeds: tuple[float, float] | None = None
    """Interval for these tasks: how much the number would move with other seeds. None where an arm has a single run."""
    over_tasks: tuple[float, float] | None = None
    """Interval for other tasks like these, and other seeds. None below `LEAST_TASKS` tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """The probability that a run of one arm is better than a run of the other, averaged over tasks.

    The p-values are of exact tests and corrected for all pairs: bootstrap intervals of so few runs claim too much where
    all runs of one arm are ahead, and then have no width.
    """

    arm: str
    against: str
    probability: IntervalEstimate
    p_on_these: float
    """That the arms are equal on each of these tasks: `stratified_p`, corrected by Holm's method."""
    p_on_others: float
    """That they are equal on tasks like these: the sign-flip test of the tasks' probabilities less 1/2, corrected by
    `exact_tests.closed_p`, or by Holm's method for very many arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """The aggregates of all arms, in their order, and of all pairs."""

    mean_rank: tuple[IntervalEstimate, ...]
    interquartile_mean: tuple[IntervalEstimate, ...]
    improvement: tuple[Improvement, ...]


def normalised(runs: Runs, anchors: tuple[float, float] | None) -> list[Floats]:
    """Return the scores of one task on a scale on which those of several tasks can be averaged.

    The anchors, scores of a model that knows nothing and of a perfect one, become 0 and 1; without them the worst and
    the best run do, which says nothing about how much arms differ. A lost run gets the lowest of 0 and the worst run's.
    """
    known = np.concatenate(runs)
    known = known[np.isfinite(known)]
    if anchors is None:
        anchors = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    zero, one = anchors
    if one == zero:  # all runs are equal: none is worse than the best
        zero = one - 1
    scaled = [(own - zero) / (one - zero) for own in runs]
    worst = min(0.0, float((known.min() - zero) / (one - zero))) if known.size else 0.0
    return [np.where(np.isfinite(own), own, worst) for own in scaled]


def win_probability(one: Floats, other: Floats) -> float:
    """Return the share of pairs of runs in which the first arm is better; a tie counts half.

    Mann and Whitney's U divided by the number of pairs.
    """
    return float(_wins(one, other).mean())


def ranks(runs: Runs) -> list[float]:
    """Return each arm's rank on one task: that of a random run of it among one random run of every arm, on average.

    ``rank(a) = 1 + sum over b != a of P(b better than a)``: from 1 (best) to the number of arms, ties averaged. The
    rank of the mean score would need a number for a lost run, and jumps where two arms are close.
    """
    return _mean_ranks([runs], _Sample.of_everything([runs]))[0][0].tolist()


def aggregate(
    tasks: Sequence[Runs], normal: Sequence[Runs], arms: Sequence[str], *, confidence: float = 0.95
) -> Aggregated:
    """Return the aggregates over tasks, each task counting the same whatever the number of its runs.

    The interquartile mean is that of the normalised scores of all runs and tasks: the mean of the middle half, a run on
    either border counting in part.

    Args:
        tasks: for each task the scores of all arms, in the same order.
        normal: the same, `normalised`.
        arms: their names.
        confidence: of the intervals, between 0 and 1.
    """
    pairs = list(combinations(range(len(arms)), 2))
    everything = _numbers(tasks, normal, _Sample.of_everything(tasks))
    samples = [None if sample is None else _numbers(tasks, normal, sample) for sample in _samples(tasks)]
    p_on_these = exact.holm([stratified_p([(runs[one], runs[other]) for runs in tasks]) for one, other in pairs])

    outside = [(1 - confidence) / 2, 1 - (1 - confidence) / 2]

    def estimates(kind: int) -> list[IntervalEstimate]:
        found: list[IntervalEstimate] = []
        for place, value in enumerate(everything[kind][0].tolist()):
            ends = [None if drawn is None else np.quantile(drawn[kind][:, place], outside) for drawn in samples]
            seeds, others = (None if pair is None else (float(pair[0]), float(pair[1])) for pair in ends)
            found.append(IntervalEstimate(value=value, over_seeds=seeds, over_tasks=others))
        return found

    columns = zip(pairs, estimates(2), p_on_these, _task_p_values(tasks, pairs), strict=True)
    return Aggregated(
        mean_rank=tuple(estimates(0)),
        interquartile_mean=tuple(estimates(1)),
        improvement=tuple(
            Improvement(arm=arms[one], against=arms[other], probability=found, p_on_these=these, p_on_others=others)
            for (one, other), found, these, others in columns
        ),
    )


def stratified_p(tasks: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the two-sided p-value that two arms are equal on each task, by their mean probability of improvement.

    Runs of equal arms may be exchanged within a task (a permutation test of Mann and Whitney's statistic stratified by
    task, after van Elteren 1960); `PERMUTATIONS` random exchanges are drawn, so no p-value is below 1 / 20,000.
    """
    chance = np.random.default_rng(_SEED)
    seen, drawn = 0.0, np.zeros(PERMUTATIONS)
    for one, other in tasks:
        ranked = np.asarray(exact.scipy_stats().rankdata(np.concatenate([one, other])))
        centred = (ranked - ranked.mean()) / (len(one) * len(other))  # those of an arm add up to P - 1/2
        seen += centred[: len(one)].sum()
        exchanged = chance.permuted(np.tile(centred, (PERMUTATIONS, 1)), axis=1)
        drawn += exchanged[:, : len(one)].sum(axis=1)
    return float(1 + (np.abs(drawn) >= abs(seen) - _EPSILON).sum()) / (1 + PERMUTATIONS)


def tasks_needed(arms: int, level: float) -> int:
    """Return the least number of tasks with which a claim about other tasks is possible."""
    pairs = max(1, math.comb(arms, 2))
    closed = 1 < pairs and arms <= exact.MOST_ARMS_OF_CLOSED_TESTING
    return exact.seeds_needed(level + _EPSILON, share=exact.share_of_level(arms) if closed else 1 / pairs)


def _task_p_values(tasks: Sequence[Runs], pairs: Sequence[tuple[int, int]]) -> list[float]:
    single = {
        (str(one), str(other)): exact.paired_p([win_probability(runs[one], runs[other]) - 0.5 for runs in tasks])
        for one, other in pairs
    }
    if len(pairs) < 2 or len(tasks[0]) > exact.MOST_ARMS_OF_CLOSED_TESTING:
        return exact.holm(list(single.values()))
    by_task: dict[int | str, list[float]] = {task: ranks(runs) for task, runs in enumerate(tasks)}
    scores = {str(arm): {task: -own[arm] for task, own in by_task.items()} for arm in range(len(tasks[0]))}
    return list(exact.closed_p(single, scores).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """Weights of tasks and runs, one row for each bootstrap sample; each row of each array sums to 1."""

    tasks: Floats
    """Weights (samples, tasks)."""
    runs: list[list[Floats]]
    """For each task and arm the weights (samples, runs)."""

    @classmethod
    def of_everything(cls, tasks: Sequence[Runs]) -> _Sample:
        """Return the one sample in which everything counts the same."""
        runs = [[np.full((1, len(scores)), 1 / len(scores)) for scores in own] for own in tasks]
        return cls(tasks=np.full((1, len(tasks)), 1 / len(tasks)), runs=runs)


def _samples(tasks: Sequence[Runs]) -> tuple[_Sample | None, _Sample | None]:
    """Return the bootstrap samples over seeds, and those over tasks and seeds; None where there are too few."""
    chance = np.random.default_rng(_SEED)
    same = np.full((REPLICATES, len(tasks)), 1 / len(tasks))
    single = any(len(scores) < 2 for own in tasks for scores in own)
    over_seeds = None if single else _Sample(tasks=same, runs=_drawn_runs(tasks, chance))
    if len(tasks) < LEAST_TASKS:
        return over_seeds, None
    return over_seeds, _Sample(tasks=_drawn(len(tasks), chance), runs=_drawn_runs(tasks, chance))


def _drawn_runs(tasks: Sequence[Runs], chance: np.random.Generator) -> list[list[Floats]]:
    return [[_drawn(len(scores), chance) for scores in own] for own in tasks]


def _drawn(count: int, chance: np.random.Generator) -> Floats:
    """Return the weights of `count` things of which one fewer is drawn with replacement; a single one stays."""
    draws = max(1, count - 1)
    return chance.multinomial(draws, np.full(count, 1 / count), size=REPLICATES) / draws


def _wins(one: Floats, other: Floats) -> Floats:
    return (one[:, None] > other) + 0.5 * (one[:, None] == other)


def _numbers(tasks: Sequence[Runs], normal: Sequence[Runs], sample: _Sample) -> tuple[Floats, Floats, Floats]:
    rank, improvement = _mean_ranks(tasks, sample)
    return rank, _interquartile_means(normal, sample), improvement


def _mean_ranks(tasks: Sequence[Runs], sample: _Sample) -> tuple[Floats, Floats]:
    """Return for each sample the mean rank of each arm, and the probability of improvement of each pair of arms."""
    arms, samples = len(tasks[0]), len(sample.tasks)
    rank = np.ones((samples, arms))
    improvement: list[Floats] = []
    for one, other in combinations(range(arms), 2):
        better = np.zeros(samples)
        for place, (runs, weights) in enumerate(zip(tasks, sample.runs, strict=True)):
            won = (weights[one] @ _wins(runs[one], runs[other]) * weights[other]).sum(axis=1)
            better += sample.tasks[:, place] * won
        improvement.append(better)
        rank[:, one] += 1 - better
        rank[:, other] += better
    return rank, np.stack(improvement, axis=1) if improvement else np.zeros((samples, 0))


def _interquartile_means(normal: Sequence[Runs], sample: _Sample) -> Floats:
    """Return for each sample the weighted interquartile mean of each arm over all its runs and tasks."""
    found: list[Floats] = []
    for arm in range(len(normal[0])):
        scores = np.concatenate([runs[arm] for runs in normal])
        weights = np.concatenate([sample.tasks[:, [t]] * own[arm] for t, own in enumerate(sample.runs)], axis=1)
        order = np.argsort(scores)
        passed = np.clip(np.cumsum(weights[:, order], axis=1), 0.25, 0.75)
        found.append(np.diff(passed, axis=1, prepend=0.25) @ scores[order] / 0.5)
    return np.stack(found, axis=1)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of the mean ranks of the same arms at two sizes; None where one of them has ties only."""
    tau = float(exact.scipy_stats().kendalltau(one, other).statistic)
    return tau if math.isfinite(tau) else None
