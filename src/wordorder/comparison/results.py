"""Make the results of a comparison: every number, and everything that is needed to repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.comparison import results_file
from wordorder.comparison.arms import Arm, own_classes_of
from wordorder.comparison.pipeline import Pipeline
from wordorder.comparison.probes.measure import AXES, read_measured
from wordorder.comparison.runs import (
    Json,
    Metrics,
    Run,
    Statistics,
    best_rates,
    grid_entries,
    scores_by_rate,
    scores_of,
    validation_score,
)
from wordorder.comparison.statistics.curves import steps_to_loss
from wordorder.comparison.statistics.significance import compare_arms
from wordorder.comparison.statistics.summary import metric_of, summarise
from wordorder.data.settings import SPLITS, TEST_ONCE
from wordorder.errors import RunFailed
from wordorder.files import finite, one_line, read_json
from wordorder.training.runs.folder import ENVIRONMENT, MODEL, read_curve
from wordorder.training.runs.unit_scores import UnitScores, read_unit_scores

if TYPE_CHECKING:
    from wordorder.comparison.engines.store import Store
    from wordorder.training import CompareConfig, Recipe


@dataclass(slots=True, kw_only=True)
class Record:
    """The state of a comparison; `results_of` makes its results of it."""

    recipe: Recipe
    config: CompareConfig
    arms: Sequence[Arm]
    folder: Path
    statistics: Statistics
    pipeline: Pipeline
    trials: list[Run] = field(default_factory=list[Run])
    runs: list[Run] = field(default_factory=list[Run])
    """The runs that count; known once the learning rates are."""
    grid: list[Run] = field(default_factory=list[Run])
    """All runs of a grid of learning rates; those that count are among them."""
    failed: dict[Path, str] = field(default_factory=dict[Path, str])
    """Run folder -> reason of its failure."""
    costs: dict[tuple[str, int | None], Json] = field(default_factory=dict[tuple[str, int | None], Json])
    """(arm, fold) -> cost: vocabularies differ between folds."""
    budget: results_file.MatchedBudget | None = None
    store: Store | None = None
    """The object store that holds the folder, if one does."""
    looks: tuple[results_file.Look, ...] = ()

    @property
    def place(self) -> str:
        """The folder, or its address in the object store, as messages name it."""
        return str(self.folder) if self.store is None else self.store.url

    @property
    def metric(self) -> str:
        """The headline metric."""
        recipe = self.recipe
        generated = recipe.data.generated is not None
        return metric_of(recipe.task.name, recipe.training.select, generated=generated)

    @property
    def selection(self) -> str:
        """The metric by which trials and checkpoints are judged on the validation split."""
        return self.recipe.training.select

    @property
    def split(self) -> str:
        """The split on which scores are reported."""
        return "test" if "test" in next(iter(self.statistics.values())) else "validation"

    @property
    def protocol(self) -> str:
        """The protocol of the scores: one of data.protocol, or "validation-only" where there is no test split."""
        return self.recipe.data.protocol if self.split == "test" else "validation-only"

    def counted(self, metrics: Metrics) -> list[Run]:
        """Return the runs that count: of a grid those of each arm's best rate."""
        if not self.grid:
            return self.runs
        chosen = best_rates(scores_by_rate(self.grid, metrics, self.metric), self.metric)
        return [run for run in self.grid if chosen[run.arm] == run.rate]


def results_of(record: Record, metrics: Metrics) -> results_file.Results:
    """Return the content of results.json; what no run has been counted for is counted."""
    runs = record.counted(metrics)
    finished = [run for run in runs if run.folder in metrics]
    for run in finished:
        if (run.arm, run.fold) not in record.costs:
            record.costs[run.arm, run.fold] = record.pipeline.cost(run.recipe, run.folder / MODEL)
    environments = _environments(finished)
    tried, folders = record.grid or runs, {run.folder for run in runs}
    waiting = [run for run in tried if run.folder not in metrics and run.folder not in record.failed]
    rows = tuple(_row(record, run, metrics[run.folder]) for run in finished)
    seeds, folds, rates = record.config.seeds, record.config.folds, record.config.tune or record.config.grid
    planned = len(record.arms) * len(seeds) * max(1, len(folds))
    made = results_file.Results(
        schema=results_file.SCHEMA,
        name=record.recipe.name,
        task=record.recipe.task.name,
        metric=record.metric,
        split=record.split,
        protocol=record.protocol,
        optimistic=record.protocol != TEST_ONCE,
        statistic="median" if record.grid else "mean",
        complete=len(rows) == planned and not waiting,
        waiting=len(waiting),
        planned=results_file.Planned(arms=len(record.arms), seeds=seeds, folds=folds, runs=planned, rates=rates),
        recipe=results_file.SavedRecipe.model_validate(finite(record.recipe.to_dict())),
        written=finite(record.recipe.raw),
        environment=environments[0] if environments else {},
        data=finite(next(iter(record.statistics.values()))),
        folds=tuple(
            results_file.FoldData(
                fold=fold,
                fingerprint=own["fingerprint"],
                documents={split: own[split]["documents"] for split in SPLITS if split in own},
            )
            for fold, own in record.statistics.items()
            if fold is not None
        ),
        arms=tuple(_arm(record, runs, arm) for arm in record.arms),
        rows=rows,
        failed=tuple(
            _failure(run, record.failed[run.folder], counts=run.folder in folders)
            for run in [*record.trials, *tried]
            if run.folder in record.failed
        ),
        selection=record.selection,
        tuning=tuple(
            _trial(record, run, metrics.get(run.folder))
            for run in record.trials
            if run.folder in metrics or run.folder in record.failed
        ),
        grid=tuple(grid_entries(record.grid, metrics, record.metric, record.failed)),
        summary=summarise(rows),
        probes=collect_probes(read_probes(finished)),
        looks=record.looks,
    )
    optional = {
        "baseline": record.config.reference,
        "budget": record.budget,
        **own_classes_of(arm.recipe for arm in record.arms),
        "notes": _notes_on_machines(environments),
        "bleu_signature": metrics[finished[0].folder].get("bleu_signature") if finished else None,
    }
    results = _finite(made.having(**{key: value for key, value in optional.items() if value}))
    kept = {} if waiting else _unit_scores(finished)
    tested, steps = compare_arms(results, kept), steps_to_loss(results)
    return _finite(
        results.having(comparisons=tested.comparisons, significance=tested.significance, steps_to_loss=steps)
    )


def _unit_scores(runs: Sequence[Run]) -> dict[str, dict[int, UnitScores]]:
    by_arm: dict[str, dict[int, UnitScores]] = {}
    for run in runs:
        if run.fold is None and (scores := read_unit_scores(run.folder)) is not None:
            by_arm.setdefault(run.arm, {})[run.seed] = scores
    return by_arm


def _row(record: Record, run: Run, metrics: Json) -> results_file.Row:
    cost = record.costs[run.arm, run.fold]
    scores = {name: value for name, value in scores_of(metrics).items() if isinstance(value, int | float)}
    points = [(point["step"], point.get("validation_loss")) for point in read_curve(run.folder)]
    row = {
        **_names(run),
        "status": "finished",
        "parameters": cost["parameters"]["total"],
        "flops_per_token": cost["flops_per_token"],
        "tokens_per_second": metrics.get("tokens_per_second"),
        "peak_memory_bytes": metrics.get("peak_memory_bytes"),
        **{name: scores.get(name) for name in dict.fromkeys(["loss", "perplexity", "accuracy", *scores])},
        "validation_loss": metrics["validation"]["loss"],
        f"validation_{record.metric}": metrics["validation"].get(record.metric),
        **_rates(run),
        "steps": metrics.get("steps"),
        "best_step": metrics.get("best_step"),
        "train_seconds": metrics.get("train_seconds"),
        "batches": metrics.get("batches"),
        # a stop and a resume may write one step twice: the later one counts
        "curve": [list(point) for point in dict(p for p in points if p[1] is not None).items()],
        "model": (run.folder / MODEL).relative_to(record.folder).as_posix(),
    }
    return results_file.Row.model_validate(row)


def _arm(record: Record, runs: Sequence[Run], arm: Arm) -> results_file.ArmResult:
    cost = next((own for (name, _), own in record.costs.items() if name == arm.name), dict[str, Any]())
    first = next((run for run in runs if run.arm == arm.name), None)
    configured = {own.name: own.overrides for own in record.config.arms}
    return results_file.ArmResult(
        name=arm.name,
        encoding=arm.recipe.model.get("encoding"),
        overrides=finite(configured[arm.name]),
        **(_rates(first) if first else {"learning_rate": None}),
        parameters=dict(cost.get("parameters", {})) or None,
        encoding_parameters=dict(cost.get("encoding_parameters", {})),
        flops_per_token=cost.get("flops_per_token"),
    )


def _trial(record: Record, run: Run, metrics: Json | None) -> results_file.Trial:
    reason = record.failed.get(run.folder)
    status = {"status": "finished"} if reason is None else {"status": "failed", "reason": reason}
    known = metrics if reason is None else None
    measured = {name: None if known is None else validation_score(known, name) for name in ("loss", record.selection)}
    # in the order of the file
    head = {"arm": run.arm, **_rates(run), **_names(run)}
    return results_file.Trial.model_validate({**head, **measured, **status})


def _failure(run: Run, reason: str, *, counts: bool) -> results_file.Failure:
    stage = "tuning" if run.trial is not None else "seeds" if counts else "grid"
    return results_file.Failure(**_names(run), status="failed", stage=stage, **_rates(run), reason=reason)


def _notes_on_machines(environments: Sequence[Json]) -> list[str]:
    """Return a note on the conditions between which speeds do not compare; [] if there is only one."""
    counts = Counter(tuple(own.get(name) for name in ("device", "processors", "threads")) for own in environments)
    if len(counts) < 2:
        return []
    told = [
        f"{runs} run{'s' * (runs > 1)} on {device} with {threads} thread{'s' * (threads != 1)}"
        for (device, _, threads), runs in counts.items()
    ]
    return [
        "Tokens per second and peak memory were measured in different conditions and compare only within one: "
        f"{'; '.join(told)}."
    ]


def _rates(run: Run) -> dict[str, Any]:
    rate, factor = (run.recipe.training.learning_rate, run.recipe.training.encoding_learning_rate)
    return {"learning_rate": rate} if factor is None else {"learning_rate": rate, "encoding_learning_rate": factor}


def _names(run: Run) -> dict[str, Any]:
    names = {"arm": run.arm, "seed": run.seed}
    return names if run.fold is None else {**names, "fold": run.fold}


def _finite(results: results_file.Results) -> results_file.Results:
    """Return results whose numbers that are none, such as the loss of a run that diverged, are None."""
    return results_file.Results.model_validate(finite(results.as_json()))


def collect_probes(measured: Iterable[tuple[Run, str, Json]]) -> dict[str, results_file.ProbeResult]:
    """Return results.json's "probes": axes, the rows of all runs, and why others have none."""
    found: dict[str, results_file.ProbeResult] = {}
    for run, name, content in measured:
        head = {**{axis: content.get(axis) for axis in AXES}, "options": content.get("options", {})}
        probe = found.get(name) or results_file.ProbeResult.model_validate(
            {**head, "rows": (), "skipped": (), "notes": ()}
        )
        rows = [results_file.ProbeRow.model_validate({**_names(run), **row}) for row in content.get("rows", ())]
        notes = [note for note in content.get("notes", ()) if note not in probe.notes]
        skipped = [results_file.Skipped(arm=run.arm, reason=reason)] if (reason := content.get("skipped")) else []
        skipped = [one for one in skipped if one not in probe.skipped]  # seeds of an arm may have the same reason
        found[name] = probe.having(
            rows=(*probe.rows, *rows), skipped=(*probe.skipped, *skipped), notes=(*probe.notes, *notes)
        )
    return found


def read_probes(runs: Iterable[Run]) -> list[tuple[Run, str, Json]]:
    """Return (run, name, content) of each probe that is measured with the options of now."""
    measured = [
        (run, name, read_measured(run.folder, name, given)) for run in runs for name, given in run.probes.items()
    ]
    return [(run, name, content) for run, name, content in measured if content is not None]


def _environments(finished: Sequence[Run]) -> list[Json]:
    found: list[Json] = []
    for path in [run.folder / ENVIRONMENT for run in finished]:
        if path.is_file():
            try:
                found.append(read_json(path))
            except (OSError, ValueError) as error:
                raise RunFailed(f"{path}: cannot be read: {one_line(error)}; remove it") from None
    return found
