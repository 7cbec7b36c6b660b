"""Train every learning rate of a grid with every seed, and choose the rate with the best median, as TUPE for GLUE.

Ke et al. 2021, https://arxiv.org/abs/2006.15595, Appendix B: for each rate the median over the seeds, then the best.
Where the rate is chosen on the split that is reported, as in the paper, the result is optimistic: it is the best of
several tries, and no other data confirms it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from wordorder.comparison.finished import Metrics
from wordorder.comparison.quality import lower_is_better
from wordorder.comparison.results_file import GridEntry
from wordorder.comparison.runs import Run, runs_of, validation_score
from wordorder.comparison.statistics.summary import median_and_range

if TYPE_CHECKING:
    from wordorder.comparison.fairness.arms import Arm
    from wordorder.training import CompareConfig


def grid_runs(arms: Sequence[Arm], config: CompareConfig, folder: Path) -> list[Run]:
    """Return the runs of every arm with every rate, seed and fold."""
    return runs_of(arms, config, folder, rates=config.grid)


def best_rates(runs: Sequence[Run], metrics: Metrics, metric: str) -> dict[str, float]:
    """Return each arm's rate: of those with the most finished seeds, the one with the best validation median.

    A rate that a seed could not be trained with so loses against one that trains them all. Of equals the smaller one.

    Args:
        runs: of `grid_runs`.
        metrics: of those that are finished.
        metric: by which the rates are judged, on the validation split.
    """
    sign = 1 if lower_is_better(metric) else -1
    found: dict[str, float] = {}
    for arm in dict.fromkeys(run.arm for run in runs):
        values = {rate: list(_values(own, metrics, metric).values()) for rate, own in _by_rate(runs, arm).items()}
        found[arm] = min(
            sorted(values),
            key=lambda rate: (-len(values[rate]), sign * median(values[rate]) if values[rate] else 0.0),
        )
    return found


def grid_entries(runs: Sequence[Run], metrics: Metrics, metric: str, failed: Mapping[Path, str]) -> list[GridEntry]:
    """Return results.json's "grid": per arm and rate the validation metric of each seed and its median.

    Args:
        runs: of `grid_runs`.
        metrics: of those that are finished.
        metric: by which the rates are judged.
        failed: reason by run folder.
    """
    chosen = best_rates(runs, metrics, metric)
    return [
        GridEntry(
            arm=arm,
            learning_rate=rate,
            chosen=chosen[arm] == rate,
            failed=sum(run.folder in failed for run in own),
            seeds=_values(own, metrics, metric),
            **median_and_range(_values(own, metrics, metric).values()),
        )
        for arm in chosen
        for rate, own in _by_rate(runs, arm).items()
    ]


def _by_rate(runs: Sequence[Run], arm: str) -> dict[float, list[Run]]:
    rates: dict[float, list[Run]] = {}
    for run in runs:
        if run.arm == arm and run.rate is not None:
            rates.setdefault(run.rate, []).append(run)
    return rates


def _values(runs: Sequence[Run], metrics: Metrics, metric: str) -> dict[str, float]:
    """Return the metric by seed (and fold), of the finished runs where it is a number."""
    measured = {_name(run): validation_score(metrics[run.folder], metric) for run in runs if run.folder in metrics}
    return {seed: value for seed, value in measured.items() if value is not None}


def _name(run: Run) -> str:
    return str(run.seed) if run.fold is None else f"{run.seed}, fold {run.fold}"
