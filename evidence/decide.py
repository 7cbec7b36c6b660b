"""Make one table of several comparisons of the same models, each on a task of its own.

    python evidence/decide.py evidence/results/decision/*.json --group-by model.hidden_size

It has mean rank, interquartile mean and probability of improvement, as in Agarwal et al. 2021, "Deep Reinforcement
Learning at the Edge of the Statistical Precipice", https://arxiv.org/abs/2108.13264. A task is an array of scores for
each arm, higher being better; a lost run is minus infinity, which is worse than any number and equal to another lost
run. Intervals are percentiles of a bootstrap of runs, and of tasks. **From n runs n - 1 are drawn, and from T tasks
T - 1**, where the paper draws as many as there are: the variance of a mean of n draws is (n - 1) / n of what it should
be, and with n - 1 draws it is right (McCarthy and Snowden 1985, "The bootstrap and finite population sampling").
docs/statistics.md has the coverage of both.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median, stdev

import numpy as np
import numpy.typing as npt
from scipy import stats

from wordorder.comparison.report.differences import MISSING, places_beside, significant
from wordorder.comparison.report.table import markdown_rows
from wordorder.comparison.results_file import Results, read_results
from wordorder.comparison.statistics.curves import FINISHED_UNKNOWN, LEAST_RELATIVE_FALL, finished, rate_at_edge
from wordorder.comparison.statistics.seeds import BETTER, holm, sign_flip_p
from wordorder.comparison.statistics.significance import between, compare_arms, ended_runs, waiting_runs
from wordorder.comparison.statistics.summary import METRICS, baseline_of, by_run, quality_of, scale_of
from wordorder.tasks import Metric
from wordorder.tasks.task import PERPLEXITY, perplexity_of

Floats = npt.NDArray[np.float64]
Runs = Sequence[Floats]
"""Scores of one task: for each arm those of its runs."""

CONFIDENCE = 0.95
"""Confidence of the intervals; claims are at the level 1 less it."""
REPLICATES = 10_000
"""Number of bootstrap samples; intervals then move by about a hundredth of their width with the seed."""
LEAST_TASKS = 3
"""Smallest number of tasks for which there is an interval over tasks."""
PERMUTATIONS = 19_999
FALLING, EDGE, ON_THESE, ON_OTHERS = "↓", "*", "*", "†"
"""Marks of cells and of probabilities."""
_SEED = 0
_EPSILON = 1e-9


# Numbers over tasks.


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

    The p-values are of permutation tests and corrected for all pairs: bootstrap intervals of so few runs claim too much
    where all runs of one arm are ahead, and then have no width.
    """

    arm: str
    against: str
    probability: IntervalEstimate
    p_on_these: float
    """That the arms are equal on each of these tasks: `stratified_p`, corrected by Holm's method."""
    p_on_others: float
    """That they are equal on tasks like these: the sign-flip test of the tasks' probabilities less 1/2, corrected by
    Holm's method."""


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
    scores = np.concatenate(runs)
    finite = scores[np.isfinite(scores)]
    if anchors is None:
        anchors = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    zero, one = anchors
    if one == zero:  # all runs are equal: none is worse than the best
        zero = one - 1
    worst = min(0.0, float((finite.min() - zero) / (one - zero))) if finite.size else 0.0
    return [np.where(np.isfinite(scaled), scaled, worst) for scaled in ((arm - zero) / (one - zero) for arm in runs)]


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


def aggregate(tasks: Sequence[Runs], normal: Sequence[Runs], arms: Sequence[str]) -> Aggregated:
    """Return the aggregates over tasks, each task counting the same whatever the number of its runs.

    The interquartile mean is that of the normalised scores of all runs and tasks: the mean of the middle half, a run on
    either border counting in part.

    Args:
        tasks: for each task the scores of all arms, in the same order.
        normal: the same, `normalised`.
        arms: their names.
    """
    pairs = list(combinations(range(len(arms)), 2))
    everything = _numbers(tasks, normal, _Sample.of_everything(tasks))
    samples = [None if sample is None else _numbers(tasks, normal, sample) for sample in _samples(tasks)]
    p_on_these = holm([stratified_p([(runs[one], runs[other]) for runs in tasks]) for one, other in pairs])

    outside = [(1 - CONFIDENCE) / 2, 1 - (1 - CONFIDENCE) / 2]

    def estimates(kind: int) -> list[IntervalEstimate]:
        estimates: list[IntervalEstimate] = []
        for column, value in enumerate(everything[kind][0].tolist()):
            ends = [None if drawn is None else np.quantile(drawn[kind][:, column], outside) for drawn in samples]
            seeds, others = (None if pair is None else (float(pair[0]), float(pair[1])) for pair in ends)
            estimates.append(IntervalEstimate(value=value, over_seeds=seeds, over_tasks=others))
        return estimates

    columns = zip(pairs, estimates(2), p_on_these, _task_p_values(tasks, pairs), strict=True)
    return Aggregated(
        mean_rank=tuple(estimates(0)),
        interquartile_mean=tuple(estimates(1)),
        improvement=tuple(
            Improvement(arm=arms[one], against=arms[other], probability=estimate, p_on_these=these, p_on_others=others)
            for (one, other), estimate, these, others in columns
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
        ranked = np.asarray(stats.rankdata(np.concatenate([one, other])))
        centred = (ranked - ranked.mean()) / (len(one) * len(other))  # those of an arm add up to P - 1/2
        seen += centred[: len(one)].sum()
        exchanged = chance.permuted(np.tile(centred, (PERMUTATIONS, 1)), axis=1)
        drawn += exchanged[:, : len(one)].sum(axis=1)
    return float(1 + (np.abs(drawn) >= abs(seen) - _EPSILON).sum()) / (1 + PERMUTATIONS)


def _task_p_values(tasks: Sequence[Runs], pairs: Sequence[tuple[int, int]]) -> list[float]:
    ahead = [[win_probability(runs[one], runs[other]) - 0.5 for runs in tasks] for one, other in pairs]
    return holm([sign_flip_p(by_task) for by_task in ahead])


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
        runs = [[np.full((1, len(scores)), 1 / len(scores)) for scores in task] for task in tasks]
        return cls(tasks=np.full((1, len(tasks)), 1 / len(tasks)), runs=runs)


def _samples(tasks: Sequence[Runs]) -> tuple[_Sample | None, _Sample | None]:
    """Return the bootstrap samples over seeds, and those over tasks and seeds; None where there are too few."""
    chance = np.random.default_rng(_SEED)
    same = np.full((REPLICATES, len(tasks)), 1 / len(tasks))
    single = any(len(scores) < 2 for task in tasks for scores in task)
    over_seeds = None if single else _Sample(tasks=same, runs=_drawn_runs(tasks, chance))
    if len(tasks) < LEAST_TASKS:
        return over_seeds, None
    return over_seeds, _Sample(tasks=_drawn(len(tasks), chance), runs=_drawn_runs(tasks, chance))


def _drawn_runs(tasks: Sequence[Runs], chance: np.random.Generator) -> list[list[Floats]]:
    return [[_drawn(len(scores), chance) for scores in task] for task in tasks]


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
        for task, (runs, weights) in enumerate(zip(tasks, sample.runs, strict=True)):
            won = (weights[one] @ _wins(runs[one], runs[other]) * weights[other]).sum(axis=1)
            better += sample.tasks[:, task] * won
        improvement.append(better)
        rank[:, one] += 1 - better
        rank[:, other] += better
    return rank, np.stack(improvement, axis=1) if improvement else np.zeros((samples, 0))


def _interquartile_means(normal: Sequence[Runs], sample: _Sample) -> Floats:
    """Return for each sample the weighted interquartile mean of each arm over all its runs and tasks."""
    means: list[Floats] = []
    for arm in range(len(normal[0])):
        scores = np.concatenate([runs[arm] for runs in normal])
        weights = np.concatenate([sample.tasks[:, [t]] * runs[arm] for t, runs in enumerate(sample.runs)], axis=1)
        order = np.argsort(scores)
        # Cumulative weights, cut to the middle half: differences are what each score counts there.
        passed = np.clip(np.cumsum(weights[:, order], axis=1), 0.25, 0.75)
        means.append(np.diff(passed, axis=1, prepend=0.25) @ scores[order] / 0.5)
    return np.stack(means, axis=1)


# The table of several results files.


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One results file, a column of the table, with what is computed of it."""

    path: Path
    name: str
    results: Results
    metric: Metric
    group: str | None
    """Value of the recipe key by which files are grouped."""
    scale: str
    """Scores that become 0 and 1 in the interquartile mean, in words."""
    runs: list[Floats]
    normal: list[Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One arm on one task."""

    task: str
    group: str | None
    arm: str
    runs: int
    """Number of seeds (or folds) that ended, the lost ones included."""
    lost: int
    score: float | None
    """Mean of the headline metric, the geometric one of perplexities; the median where the file reports medians. Over
    finished runs: None where all were lost."""
    low: float | None
    """Lower end of Student's interval of a mean."""
    high: float | None
    still_falling: bool
    """Whether training was too short, by the middle of the validation curves."""
    rate_at_edge: bool | None
    """True if the rate, or that of the encoding, is the lowest or highest that the arm tried; None where it tried fewer
    than two of either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmScore:
    """The aggregates of one arm."""

    arm: str
    mean_rank: IntervalEstimate
    interquartile_mean: IntervalEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The aggregates over the tasks of one size."""

    value: str | None
    tasks: tuple[str, ...]
    """Those that count: where the best model is significantly better than the control. Others rank noise."""
    all_tasks: tuple[str, ...]
    arms: tuple[ArmScore, ...]
    """Best mean rank first; () where no task counts."""
    pairs: tuple[Improvement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionTable:
    """Aggregates and cells of all groups."""

    arms: tuple[str, ...]
    group_by: str | None
    tasks: tuple[Task, ...]
    cells: tuple[Cell, ...]
    groups: tuple[Group, ...]


def make_decision_table(files: Sequence[Path], *, group_by: str | None = None) -> DecisionTable:
    """Aggregate the results files of several tasks.

    Args:
        files: a results.json each.
        group_by: a key of the recipe, such as "model.hidden_size", by whose value the files are aggregated apart.

    Raises:
        ValueError: a file has no runs for an arm or is not finished; arms differ between files; two files of a group
            are one task.
    """
    results = [read_results(path) for path in files]
    arms = _arms(files, results)
    groups = [_group_of(path, result, group_by) for path, result in zip(files, results, strict=True)]
    names = Counter((group, result.name) for group, result in zip(groups, results, strict=True))
    tasks = [
        _task(path, result, group, str(path) if names[group, result.name] > 1 else result.name, arms)
        for path, result, group in zip(files, results, groups, strict=True)
    ]
    _refuse_one_task_twice(tasks)
    return DecisionTable(
        arms=arms,
        group_by=group_by,
        tasks=tuple(tasks),
        cells=tuple(cell for task in tasks for cell in _cells(task, arms)),
        groups=tuple(
            _group(value, [task for task in tasks if task.group == value], arms)
            for value in sorted(set(groups), key=_order)
        ),
    )


def _arms(files: Sequence[Path], results: Sequence[Results]) -> tuple[str, ...]:
    """Return the arms, which all files have with one encoding each."""
    encodings = [{arm.name: arm.encoding for arm in result.arms} for result in results]
    for path, result, names in zip(files, results, encodings, strict=True):
        if waiting := waiting_runs(result):
            raise ValueError(f"{path}: {waiting} runs are still to be trained; finish them with wordorder compare")
        if names.keys() != encodings[0].keys():
            raise ValueError(f"{path}: has the arms {', '.join(names)}, and {files[0]} {', '.join(encodings[0])}")
        for name, encoding in names.items():
            if None not in (encoding, encodings[0][name]) and encoding != encodings[0][name]:
                raise ValueError(
                    f"{path}: arm {name} has the encoding {encoding}, in {files[0]} {encodings[0][name]}; rename one"
                )
    return tuple(encodings[0])


def _group_of(path: Path, results: Results, key: str | None) -> str | None:
    if key is None:
        return None
    value: object = results.recipe.as_json()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None or isinstance(value, dict | list):
        raise ValueError(
            f"{path}: --group-by {key}: its recipe has no such value; name a key such as model.hidden_size"
        )
    return str(value)


def _order(value: str | None) -> tuple[float, str]:
    """Order numbers by their size, before words."""
    try:
        return float(value or 0), ""
    except ValueError:
        return math.inf, str(value)


def goodness_by_run(results: Results) -> dict[str, dict[int | str, float]]:
    """Return by arm and seed (or fold) the headline score on the scale of the tests: higher is better.

    Perplexities are minus their logarithm. A lost run is minus infinity, worse than any number; so is a fold that lost
    a run.
    """
    scale, runs, scores = scale_of(results), by_run(results), dict[str, dict[int | str, float]]()
    for arm, ended in ended_runs(results).items():
        finished = {unit: runs[arm][unit] for unit, lost in ended.items() if not lost}
        scores[arm] = scale.scores(finished) | {
            seed if fold is None else f"fold {fold}": -math.inf for (fold, seed), lost in ended.items() if lost
        }
    return scores


def _task(path: Path, results: Results, group: str | None, name: str, arms: Sequence[str]) -> Task:
    metric, by_arm = METRICS[quality_of(results).key], goodness_by_run(results)
    if without := [arm for arm in arms if not by_arm.get(arm)]:
        raise ValueError(f"{path}: has no run of the arms {', '.join(without)}; train them")
    runs = [np.array(list(by_arm[arm].values())) for arm in arms]
    anchors, scale = _anchors(results, metric)
    normal = normalised(runs, anchors)
    return Task(
        path=path, name=name, results=results, metric=metric, group=group, scale=scale, runs=runs, normal=normal
    )


def _anchors(results: Results, metric: Metric) -> tuple[tuple[float, float] | None, str]:
    """Return the scores that become 0 and 1, fixed ones where there are such, and what they are.

    A perplexity's are guessing all tokens of the vocabulary alike and knowing every token, on the logarithmic scale.
    """
    if metric.key == PERPLEXITY.key:
        size = results.data.get("vocab_size")
        if isinstance(size, int) and size > 1:
            return (-math.log(size), 0.0), f"0: perplexity {size:,}, all tokens alike; 1: perplexity 1; linear in nats"
    elif metric.perfect is not None:
        return (0.0, metric.perfect), f"{metric.name} / {metric.perfect:g}"
    return None, "0: the worst run of these arms; 1: the best"


def _refuse_one_task_twice(tasks: Sequence[Task]) -> None:
    for one, other in combinations(tasks, 2):
        data = [task.results.data.get("fingerprint") for task in (one, other)]
        kinds = [(task.group, task.results.task, task.metric.key) for task in (one, other)]
        if data[0] is not None and data[0] == data[1] and kinds[0] == kinds[1]:
            raise ValueError(
                f"{other.path}: is the same task as {one.path} (the same data and metric); leave one out, or name the"
                " recipe key that differs with --group-by"
            )


def _cells(task: Task, arms: Sequence[str]) -> list[Cell]:
    cells = list[Cell]()
    for arm, runs in zip(arms, task.runs, strict=True):
        finite: list[float] = runs[np.isfinite(runs)].tolist()
        score = low = high = None
        if finite:
            centre, half = median(finite), None
            if task.results.statistic == "mean":
                centre = fmean(finite)
                if len(finite) > 1:
                    t = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(finite) - 1))
                    half = t * stdev(finite) / math.sqrt(len(finite))
            ends = [None if half is None else _score(centre + side * half, task.metric) for side in (-1, 1)]
            if task.metric.perfect is not None:  # Student's t knows no bounds
                ends = [None if end is None else max(task.metric.lowest, min(end, task.metric.perfect)) for end in ends]
            if not task.metric.higher_is_better:
                ends.reverse()
            score, low, high = _score(centre, task.metric), *ends
        cells.append(
            Cell(
                task=task.name,
                group=task.group,
                arm=arm,
                runs=len(runs),
                lost=len(runs) - len(finite),
                score=score,
                low=low,
                high=high,
                still_falling=finished(task.results, arm).state != FINISHED_UNKNOWN,
                rate_at_edge=rate_at_edge(task.results, arm),
            )
        )
    return cells


def _score(goodness: float, metric: Metric) -> float:
    if metric.higher_is_better:
        return goodness
    return perplexity_of(-goodness) if metric.key == PERPLEXITY.key else -goodness


def beats_control(results: Results) -> bool:
    """Tell whether the best model is significantly better than the control: `none`, or else the baseline."""
    scores = {arm: fmean(by_run.values()) for arm, by_run in goodness_by_run(results).items()}
    best, control = max(scores, key=scores.__getitem__), "none" if "none" in scores else str(baseline_of(results))
    entry = between(compare_arms(results).comparisons, best, control)
    return entry is not None and entry.outcome == BETTER


def _group(value: str | None, every_task: Sequence[Task], arms: Sequence[str]) -> Group:
    tasks = [task for task in every_task if beats_control(task.results)]
    names = tuple(task.name for task in every_task)
    if not tasks:
        return Group(value=value, tasks=(), all_tasks=names, arms=(), pairs=())
    numbers = aggregate([task.runs for task in tasks], [task.normal for task in tasks], arms)
    scores = [
        ArmScore(arm=arm, mean_rank=rank, interquartile_mean=middle)
        for arm, rank, middle in zip(arms, numbers.mean_rank, numbers.interquartile_mean, strict=True)
    ]
    return Group(
        value=value,
        tasks=tuple(task.name for task in tasks),
        all_tasks=names,
        arms=tuple(sorted(scores, key=lambda score: score.mean_rank.value)),
        pairs=numbers.improvement,
    )


# The table in words.


def is_claimed(p: float) -> bool:
    """Tell whether a corrected p-value is significant."""
    return p <= 1 - CONFIDENCE + 1e-12


def probability_of(group: Group, arm: str, against: str) -> Improvement:
    """Return the probability of improvement of an arm over another, in whatever order the table has the pair."""
    pairs = {(pair.arm, pair.against): pair for pair in group.pairs}
    if (arm, against) in pairs:
        return pairs[arm, against]
    pair = pairs[against, arm]
    ends = [end and (1 - end[1], 1 - end[0]) for end in (pair.probability.over_seeds, pair.probability.over_tasks)]
    turned = IntervalEstimate(value=1 - pair.probability.value, over_seeds=ends[0], over_tasks=ends[1])
    return replace(pair, arm=arm, against=against, probability=turned)


def in_words(value: float, interval: tuple[float, float] | None, places: int) -> str:
    """Return a number with its interval: "2.1 [1.6, 2.9]"."""
    ends = "" if interval is None else f" [{interval[0]:.{places}f}, {interval[1]:.{places}f}]"
    return f"{value:.{places}f}{ends}"


def rank_rows(group: Group) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the aggregates of a group, best mean rank first."""
    best, rows = group.arms[0].arm, list[list[str]]()
    for score in group.arms:
        rank, middle, against = score.mean_rank, score.interquartile_mean, MISSING
        if score.arm != best:
            pair = probability_of(group, best, score.arm)
            against = in_words(pair.probability.value, pair.probability.over_seeds, 2)
            against += ON_THESE * is_claimed(pair.p_on_these) + ON_OTHERS * is_claimed(pair.p_on_others)
        others = MISSING if rank.over_tasks is None else "[{:.1f}, {:.1f}]".format(*rank.over_tasks)
        rank_words = in_words(rank.value, rank.over_seeds, 1)
        rows.append([score.arm, rank_words, others, in_words(middle.value, middle.over_seeds, 3), against])
    return ["Model", "Mean rank", "on other tasks", "Interquartile mean", f"P({best} is better)"], rows


def cell_rows(table: DecisionTable, group: Group) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the scores of a group, best mean rank first."""
    metrics = {task.name: task.metric for task in table.tasks if task.group == group.value}
    cells = {(cell.arm, cell.task): cell for cell in table.cells if cell.group == group.value}
    heads = [f"{task}: {metrics[task].name}" for task in group.all_tasks]
    arms = [score.arm for score in group.arms] or table.arms
    rows = [[arm, *(cell_in_words(cells[arm, task], metrics[task]) for task in group.all_tasks)] for arm in arms]
    return ["Model", *heads], rows


def cell_in_words(cell: Cell, metric: Metric) -> str:
    """Return a cell with its interval, number of runs and marks: "4.43 [4.21, 4.66] n 5 ↓ *"."""
    if cell.score is None:
        words = MISSING
    elif cell.low is None or cell.high is None or cell.high == cell.low:
        words = significant(cell.score, metric.digits)
    else:
        places = places_beside(cell.score, cell.high - cell.low, metric.digits)
        words = f"{cell.score:,.{places}f} [{cell.low:,.{places}f}, {cell.high:,.{places}f}]"
    lost = f" ({cell.lost} lost)" if cell.lost else ""
    marks = f" {FALLING}" * bool(cell.still_falling) + f" {EDGE}" * bool(cell.rate_at_edge)
    return f"{words} n {cell.runs}{lost}{marks}"


def markdown_decision_table(table: DecisionTable) -> str:
    """Return aggregates and scores of each group, what they mean, and the scale of each file."""
    blocks: list[str] = []
    for group in table.groups:
        if table.group_by:
            blocks.append(f"{table.group_by} {group.value}")
        blocks += [markdown_rows(*rank_rows(group))] if group.tasks else ["No model beats the control: no ranks."]
        blocks.append(markdown_rows(*cell_rows(table, group)))
    counted = "; ".join(", ".join(group.tasks) for group in table.groups)
    blocks.append(
        "Mean rank: of one training among one training of every model, 1 is best, over the tasks where the best model"
        f" is significantly better than the control ({counted}). Interquartile mean: of the middle"
        " half of all normalised scores. P: the probability that a training of the model with the best mean rank is"
        f" better than one of this model; by permutation tests corrected for all pairs, they differ on these"
        f" tasks ({ON_THESE}), on other tasks ({ON_OTHERS}). [...]: {CONFIDENCE:.0%} intervals over seeds; on other"
        " tasks: over both."
    )
    blocks.append(
        "Scores: mean over the finished runs (geometric mean of perplexities); n: number of runs."
        f" {FALLING} unfinished: less than one pass over the text, or the validation loss fell by"
        f" {LEAST_RELATIVE_FALL:.0%} or more per tenth of the steps between half and three quarters of them. {EDGE} the"
        " learning rate, or that of the encoding, is the lowest or highest that was tried."
    )
    rows = [[task.name, task.group or MISSING, task.scale, task.path.as_posix()] for task in table.tasks]
    heads = ["Task", table.group_by or "Group", "Scale of the interquartile mean", "File"]
    return "\n\n".join([*blocks, markdown_rows(heads, rows)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="files results.json")
    parser.add_argument("--group-by", metavar="SECTION.KEY", help="aggregate other values of this key apart")
    options = parser.parse_args()
    print(markdown_decision_table(make_decision_table(options.results, group_by=options.group_by)))
