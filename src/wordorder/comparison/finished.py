"""Read what finished runs have left in their folders, so that results are made from values alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wordorder.comparison.pipeline import Pipeline
from wordorder.comparison.probes.files import read_probe
from wordorder.comparison.runs import Run
from wordorder.errors import RunFailed
from wordorder.limits import one_line, read_json
from wordorder.training.runs.folder import ENVIRONMENT, MODEL

Metrics = Mapping[Path, Mapping[str, Any]]
"""Run folder -> metrics.json, of the finished runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of the finished runs that count, besides their metrics."""

    curves: Mapping[Path, Sequence[Mapping[str, Any]]] = field(default_factory=dict[Path, Sequence[Mapping[str, Any]]])
    environments: Sequence[Mapping[str, Any]] = ()
    """One for each run that has it, in their order."""
    probes: Sequence[tuple[Run, str, Mapping[str, Any]]] = ()
    """(run, name, content) of each probe that was measured with the options of now."""
    costs: Mapping[tuple[str, int | None], Mapping[str, Any]] = field(
        default_factory=dict[tuple[str, int | None], Mapping[str, Any]]
    )
    """(arm, fold) -> cost: the words of the training texts, so the size of the vocabulary, differ between folds."""
    maps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])


def read_all_metrics(runs: Iterable[Run]) -> Metrics:
    """Return the metrics of those runs that are finished.

    Raises:
        RunFailed: they cannot be read.
    """
    return {run.folder: run.metrics() for run in runs if run.finished()}


def measure(finished: Sequence[Run], pipeline: Pipeline, before: Measured) -> Measured:
    """Read the folders of finished runs, and count what no run has been counted for.

    Args:
        finished: the runs that count and are finished.
        pipeline: counts costs and makes maps: cost from the first finished seed of each arm and fold, maps from that of
            each arm.
        before: of an earlier call, whose costs and maps stay.

    Raises:
        RunFailed: a file cannot be read.
    """
    costs, maps = dict(before.costs), dict(before.maps)
    for run in finished:
        if (run.arm, run.fold) not in costs:
            costs[run.arm, run.fold] = pipeline.cost(run.recipe, run.folder / MODEL)
        if run.arm not in maps:
            maps[run.arm] = pipeline.correlation(run.recipe, run.folder / MODEL)
    return Measured(
        curves={run.folder: run.curve() for run in finished},
        environments=_environments(finished),
        probes=read_probes(finished),
        costs=costs,
        maps=maps,
    )


def read_probes(runs: Iterable[Run]) -> list[tuple[Run, str, Mapping[str, Any]]]:
    """Return (run, name, content) of the probes of runs; what is not measured yet, or with other options, is left out.

    Args:
        runs: finished ones.
    """
    found: list[tuple[Run, str, Mapping[str, Any]]] = []
    for run in runs:
        for name, given in run.probes.items():
            content = read_probe(run.folder, name)
            as_read: object = json.loads(json.dumps(given, default=str))  # tuples are lists there
            if content is not None and content.get("given") == as_read:
                found.append((run, name, content))
    return found


def _environments(finished: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the environments of the runs, in their order; runs without one are left out."""
    found: list[dict[str, Any]] = []
    for path in [run.folder / ENVIRONMENT for run in finished]:
        if path.is_file():
            try:
                found.append(read_json(path))
            except (OSError, ValueError) as error:
                raise RunFailed(f"{path}: cannot be read: {one_line(error)}; remove it") from None
    return found
