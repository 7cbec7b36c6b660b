"""Make one decision table of several comparisons, each a results.json of one task.

The arms are the same in all of them. What is computed, and what an interval says, is in `statistics.aggregate`; how a
table reads is in `report.decision_table`.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, JsonValue

from wordorder import __version__
from wordorder.comparison.quality import quality_of
from wordorder.comparison.results_file import Results, read_results
from wordorder.comparison.statistics.aggregate import (
    REPLICATES,
    Floats,
    Improvement,
    IntervalEstimate,
    aggregate,
    normalised,
    rank_correlation,
    ranks,
)
from wordorder.comparison.statistics.curves import mean_end, rate_at_edge
from wordorder.comparison.statistics.intervals import paired_mean, paired_median
from wordorder.comparison.statistics.significance import goodness_by_run, waiting_runs
from wordorder.comparison.statistics.summary import by_run
from wordorder.errors import BadInput
from wordorder.limits import read_bytes
from wordorder.tasks import Metric
from wordorder.tasks.metrics import PERPLEXITY, perplexity_of

CONFIDENCE = 0.95
"""Confidence of the intervals; claims are at the level 1 less it."""
RESULTS = "results.json"


class _Written(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Source(_Written):
    """One results file: a column of the table."""

    path: str
    """The file as it was named on the command line."""
    sha256: str
    task: str
    """Name of the column: that of the recipe, or the path where two recipes of a group have one name."""
    kind: str
    """Task of the recipe: "masked-lm"."""
    metric: str
    higher_is_better: bool
    group: str | None
    """Value of the recipe key by which files are grouped."""
    normalised: str
    """Scores that become 0 and 1 in the interquartile mean, in words."""
    commit: str | None
    """Commit of the package that trained the runs."""


class Cell(_Written):
    """One arm on one task."""

    task: str
    group: str | None
    arm: str
    runs: int
    """Number of seeds (or folds) that ended, the lost ones included."""
    lost: int
    score: float | None
    """Mean of the headline metric, the geometric one of perplexities; the pseudomedian where the file reports medians.
    Over finished runs: None where all were lost."""
    low: float | None
    high: float | None
    rank: float
    normalised: float
    relative_fall: float | None
    """Fall of the validation loss over the last tenth of the steps, as a share of it; None without a curve."""
    still_falling: bool | None
    learning_rate: float | None
    encoding_learning_rate: float | None = None
    """Multiple of it that the encoding's parameters have; None: the recipe says none."""
    rate_at_edge: bool | None
    """True if the rate, or that of the encoding, is the lowest or highest that the arm tried; None where it tried fewer
    than two of either."""


class ArmScore(_Written):
    """The aggregates of one arm."""

    arm: str
    mean_rank: IntervalEstimate
    interquartile_mean: IntervalEstimate


class Group(_Written):
    """The aggregates over the tasks of one size."""

    value: str | None
    tasks: tuple[str, ...]
    arms: tuple[ArmScore, ...]
    """Best mean rank first."""
    pairs: tuple[Improvement, ...]


class Turn(_Written):
    """How far two groups order the arms alike."""

    groups: tuple[str, str]
    tau: float | None
    """Kendall's tau-b of the mean ranks: 1 the same order, 0 no relation, -1 the reverse."""
    turned: tuple[tuple[str, str], ...]
    """Pairs (better in the first group, better in the second)."""
    pairs: int
    same_tasks: bool
    """False where the groups hold other tasks or data: a turn may then be one of the tasks."""


class DecisionTable(_Written):
    """The content of aggregate.json."""

    version: int = 1
    title: str
    arms: tuple[str, ...]
    left_out: tuple[str, ...]
    group_by: str | None
    confidence: float
    replicates: int
    packages: dict[str, str]
    sources: tuple[Source, ...]
    cells: tuple[Cell, ...]
    groups: tuple[Group, ...]
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A results file with what is computed of it for the arms of the table."""

    source: Source
    results: Results
    runs: list[Floats]
    normal: list[Floats]

    @property
    def identity(self) -> tuple[str, str, object]:
        """The task, its metric and its data: two files that agree in it are one task."""
        return self.source.kind, self.source.metric, self.results.data.get("fingerprint")


def results_files(paths: Sequence[Path]) -> list[Path]:
    """Return the results files among the paths: files as they are, of folders their results.json or their folders'."""
    found: list[Path] = []
    for path in paths:
        own = [path]
        if path.is_dir():
            own = [path / RESULTS] if (path / RESULTS).exists() else sorted(path.glob(f"*/{RESULTS}"))
        if not own:
            raise BadInput(f"{path}: neither it nor a folder in it holds {RESULTS}; run wordorder compare first")
        found += own
    twice = [str(path) for path, count in Counter(path.resolve() for path in found).items() if count > 1]
    if twice:
        raise BadInput(f"{path}: is named twice; name every file once" for path in twice)
    return found


def make_decision_table(
    paths: Sequence[Path], *, title: str = "", group_by: str | None = None, common_arms: bool = False
) -> DecisionTable:
    """Aggregate the results files of several tasks.

    Args:
        paths: results files, or folders that hold them (`results_files`).
        title: of the table; "" for none.
        group_by: a key of the recipe, such as "model.hidden_size", by whose value the files are aggregated apart.
        common_arms: leave out the arms that some files lack, instead of refusing.

    Raises:
        BadInput: a file cannot be read, has no runs for an arm or is not finished; arms differ between files; two files
            of a group are one task.
    """
    files = results_files(paths)
    read = [read_results(path) for path in files]
    faults = [
        f"{path}: {waiting} runs are still to be trained; finish them with wordorder compare"
        for path, results in zip(files, read, strict=True)
        if (waiting := waiting_runs(results))
    ]
    if faults:
        raise BadInput(faults)
    arms, left_out = _arms(files, read, common=common_arms)
    groups = [_group_of(path, results, group_by) for path, results in zip(files, read, strict=True)]
    names = Counter((group, results.name) for group, results in zip(groups, read, strict=True))
    tasks = [
        _task(path, results, group, str(path) if names[group, results.name] > 1 else results.name, arms)
        for path, results, group in zip(files, read, groups, strict=True)
    ]
    _refuse_one_task_twice(tasks, group_by)
    grouped = {
        value: [task for task in tasks if task.source.group == value] for value in sorted(set(groups), key=_order)
    }
    made = {value: _group(value, own, arms) for value, own in grouped.items()}
    return DecisionTable(
        title=title,
        arms=arms,
        left_out=left_out,
        group_by=group_by,
        confidence=CONFIDENCE,
        replicates=REPLICATES,
        packages={"wordorder": __version__, **{name: importlib.metadata.version(name) for name in ("numpy", "scipy")}},
        sources=tuple(task.source for task in tasks),
        cells=tuple(cell for task in tasks for cell in _cells(task, arms)),
        groups=tuple(made.values()),
        turns=tuple(
            _turn((made[one], made[other]), (grouped[one], grouped[other]), arms)
            for one, other in combinations(grouped, 2)
        ),
    )


def _arms(files: Sequence[Path], read: Sequence[Results], *, common: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    every = list(dict.fromkeys(arm.name for results in read for arm in results.arms))
    own = [{arm.name for arm in results.arms} for results in read]
    shared = tuple(name for name in every if all(name in names for names in own))
    missing = [
        f"{path}: lacks the arms {', '.join(name for name in every if name not in names)}"
        for path, names in zip(files, own, strict=True)
        if len(names) < len(every)
    ]
    if missing and not common:
        words = f"keeps the {len(shared)} that all files have" if shared else "would keep none: no arm is in all files"
        raise BadInput([*missing, f"train them, or leave these files out; --common-arms {words}"])
    if len(shared) < 2:
        raise BadInput(f"the files have {len(shared)} arms in common ({', '.join(shared)}); a table takes two or more")
    faults: list[str] = []
    for name in shared:
        kinds = [arm.encoding for results in read for arm in results.arms if arm.name == name]
        for path, kind in zip(files, kinds, strict=True):
            if None not in (kind, kinds[0]) and kind != kinds[0]:
                faults.append(
                    f"{path}: arm {name} has the encoding {kind}, in {files[0]} {kinds[0]}; rename one of them"
                )
    if faults:
        raise BadInput(faults)
    return shared, tuple(name for name in every if name not in shared)


def _group_of(path: Path, results: Results, key: str | None) -> str | None:
    if key is None:
        return None
    value: JsonValue = results.recipe.as_json()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None or isinstance(value, dict | list):
        raise BadInput(f"{path}: --group-by {key}: its recipe has no such value; name a key such as model.hidden_size")
    return str(value)


def _order(value: str | None) -> tuple[float, str]:
    """Order numbers by their size, before words."""
    try:
        return float(value or 0), ""
    except ValueError:
        return math.inf, str(value)


def _task(path: Path, results: Results, group: str | None, name: str, arms: Sequence[str]) -> _Task:
    quality, by_arm = quality_of(results), goodness_by_run(results)
    if without := [arm for arm in arms if not by_arm.get(arm)]:
        raise BadInput(f"{path}: has no run of the arms {', '.join(without)}; train them, or use --common-arms")
    runs = [np.array(list(by_arm[arm].values())) for arm in arms]
    anchors, words = _anchors(results, quality)
    commit = results.environment.get("commit")
    source = Source(
        path=path.as_posix(),
        sha256=sha256(read_bytes(path)).hexdigest(),
        task=name,
        kind=results.task,
        metric=quality.key,
        higher_is_better=quality.higher_is_better,
        group=group,
        normalised=words,
        commit=commit if isinstance(commit, str) else None,
    )
    return _Task(source=source, results=results, runs=runs, normal=normalised(runs, anchors))


def _anchors(results: Results, quality: Metric) -> tuple[tuple[float, float] | None, str]:
    """Return the scores that become 0 and 1, fixed ones where there are such, and what they are.

    A perplexity's are guessing all tokens of the vocabulary alike and knowing every token, on the logarithmic scale.
    """
    if quality.key == PERPLEXITY.key:
        size = results.data.get("vocab_size")
        if isinstance(size, int) and size > 1:
            return (-math.log(size), 0.0), f"0: perplexity {size:,}, all tokens alike; 1: perplexity 1; linear in nats"
    elif quality.perfect is not None:
        return (0.0, quality.perfect), f"{quality.name} / {quality.perfect:g}"
    return None, "0: the worst run of these arms; 1: the best"


def _refuse_one_task_twice(tasks: Sequence[_Task], group_by: str | None) -> None:
    seen: dict[tuple[object, ...], _Task] = {}
    faults: list[str] = []
    for task in tasks:
        if task.identity[-1] is None:  # a file that does not say what its data are
            continue
        first = seen.setdefault((task.source.group, *task.identity), task)
        if first is not task:
            also = f" at {group_by} = {task.source.group}" if group_by else ""
            faults.append(
                f"{task.source.path}: is the same task as {first.source.path} ({task.source.kind}, the same data and "
                f"metric){also}; leave one out, or name the recipe key that differs with --group-by"
            )
    if faults:
        raise BadInput(faults)


def _cells(task: _Task, arms: Sequence[str]) -> list[Cell]:
    quality, results, rank = quality_of(task.results), task.results, ranks(task.runs)
    rows, entries = by_run(results), {arm.name: arm for arm in results.arms}
    found: list[Cell] = []
    for place, arm in enumerate(arms):
        runs = task.runs[place]
        known: list[float] = runs[np.isfinite(runs)].tolist()
        centre = low = high = None
        if known:
            size = (paired_median if results.statistic == "median" else paired_mean)(known, CONFIDENCE)
            ends = [None if end is None else _score(end, quality) for end in (size.low, size.high)]
            if quality.perfect is not None:  # Student's t knows no bounds
                ends = [None if end is None else max(quality.lowest, min(end, quality.perfect)) for end in ends]
            if not quality.higher_is_better:
                ends.reverse()
            centre, low, high = _score(size.difference, quality), *ends
        end = mean_end(row.curve for row in rows.get(arm, {}).values())
        rate, factor = entries[arm].learning_rate, entries[arm].encoding_learning_rate
        found.append(
            Cell(
                task=task.source.task,
                group=task.source.group,
                arm=arm,
                runs=len(runs),
                lost=len(runs) - len(known),
                score=centre,
                low=low,
                high=high,
                rank=rank[place],
                normalised=float(task.normal[place].mean()),
                relative_fall=end.relative_fall if end else None,
                still_falling=end.still_falling if end else None,
                learning_rate=None if rate is None else float(rate),
                encoding_learning_rate=None if factor is None else float(factor),
                rate_at_edge=rate_at_edge(results, arm),
            )
        )
    return found


def _score(goodness: float, quality: Metric) -> float:
    if quality.higher_is_better:
        return goodness
    return perplexity_of(-goodness) if quality.key == PERPLEXITY.key else -goodness


def _group(value: str | None, tasks: Sequence[_Task], arms: Sequence[str]) -> Group:
    runs, normal = [task.runs for task in tasks], [task.normal for task in tasks]
    found = aggregate(runs, normal, arms, confidence=CONFIDENCE)
    scores = [
        ArmScore(arm=arm, mean_rank=rank, interquartile_mean=middle)
        for arm, rank, middle in zip(arms, found.mean_rank, found.interquartile_mean, strict=True)
    ]
    return Group(
        value=value,
        tasks=tuple(task.source.task for task in tasks),
        arms=tuple(sorted(scores, key=lambda score: score.mean_rank.value)),
        pairs=found.improvement,
    )


def _turn(groups: tuple[Group, Group], tasks: tuple[Sequence[_Task], Sequence[_Task]], arms: Sequence[str]) -> Turn:
    one, other = ({score.arm: score.mean_rank.value for score in group.arms} for group in groups)
    turned: list[tuple[str, str]] = []
    for a, b in combinations(arms, 2):
        if (one[a] - one[b]) * (other[a] - other[b]) < 0:
            turned.append((a, b) if one[a] < one[b] else (b, a))
    first, second = (Counter(task.identity for task in own) for own in tasks)
    return Turn(
        groups=(str(groups[0].value), str(groups[1].value)),
        tau=rank_correlation([one[arm] for arm in arms], [other[arm] for arm in arms]),
        turned=tuple(turned),
        pairs=math.comb(len(arms), 2),
        same_tasks=first == second,
    )
