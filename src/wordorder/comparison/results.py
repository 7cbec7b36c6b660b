"""Make the results of a comparison: every number, and everything that is needed to repeat it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.comparison.fairness.arms import Arm
from wordorder.comparison.fairness.grid import best_rates, grid_entries
from wordorder.comparison.fairness.own_arm import own_encodings_of
from wordorder.comparison.pipeline import Pipeline
from wordorder.comparison.probes.files import AXES, read_probe
from wordorder.comparison.quality import metric_of
from wordorder.comparison.results_file import (
    SCHEMA,
    ArmResult,
    Failure,
    FoldData,
    Look,
    MatchedBudget,
    Planned,
    ProbeResult,
    ProbeRow,
    Results,
    Row,
    SavedRecipe,
    Skipped,
    Trial,
)
from wordorder.comparison.runs import Run, Statistics
from wordorder.comparison.statistics.significance import compare_arms
from wordorder.comparison.statistics.steps_to_loss import steps_to_loss
from wordorder.comparison.statistics.summary import summarise
from wordorder.data.names import SPLITS, TEST_ONCE
from wordorder.durable import finite
from wordorder.errors import RunFailed
from wordorder.limits import one_line, read_json
from wordorder.training.run.folder import ENVIRONMENT, MODEL

if TYPE_CHECKING:
    from wordorder.training import Recipe

MACHINE = ("device", "processors", "threads")
"""Names of an environment that decide the speed of a training, besides other programs on the machine."""

VALIDATION_ONLY = "validation-only"
"""Protocol where there is no test split: validation chooses the checkpoint and is the score."""


@dataclass(slots=True, kw_only=True)
class Record:
    """The state of a comparison; `as_results` turns it and the finished runs' files into the results file."""

    recipe: Recipe
    arms: Sequence[Arm]
    folder: Path
    statistics: Statistics
    pipeline: Pipeline
    trials: list[Run]
    runs: list[Run] = field(default_factory=list[Run])
    """The runs that count; known once the learning rates are."""
    grid: list[Run] = field(default_factory=list[Run])
    """All runs of a grid of learning rates; those that count are among them."""
    failed: dict[Path, str] = field(default_factory=dict[Path, str])
    """Run folder -> reason of its failure."""
    costs: dict[tuple[str, int | None], Mapping[str, Any]] = field(
        default_factory=dict[tuple[str, int | None], Mapping[str, Any]]
    )
    """(arm, fold) -> cost: the words of the training texts, so the size of the vocabulary, differ between folds."""
    maps: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    budget: MatchedBudget | None = None
    """The matched budget of the arms, and the changes made for it; see `wordorder.comparison.fairness.budget`."""
    looks: tuple[Look, ...] = ()
    """Dates and runs of the earlier looks at the results; see `wordorder.comparison.statistics.looks`."""

    def as_results(self) -> Results:
        """Return the content of results.json."""
        if self.grid:
            chosen = best_rates(self.grid, self.metric)
            self.runs = [run for run in self.grid if chosen[run.arm] == run.rate]
        finished = [run for run in self.runs if run.finished()]
        environments = _environments(finished)
        notes = _notes_on_machines(environments)
        waiting = [run for run in self.grid or self.runs if not run.finished() and run.folder not in self.failed]
        for run in finished:
            self._look_into(run)
        rows = tuple(self._row(run) for run in finished)
        compare = self.recipe.compare
        seeds, tune = (compare.seeds, compare.tune or compare.grid) if compare else ((), ())
        folds = compare.folds if compare else ()
        planned = len(self.arms) * len(seeds) * max(1, len(folds))
        made = Results(
            schema=SCHEMA,
            name=self.recipe.name,
            task=self.recipe.data.task,
            metric=self.metric,
            split=self.split,
            protocol=self.protocol,
            optimistic=self.protocol != TEST_ONCE,
            statistic="median" if self.grid else "mean",
            complete=len(rows) == planned and not waiting,
            waiting=len(waiting),
            planned=Planned(
                arms=len(self.arms), seeds=tuple(seeds), folds=tuple(folds), runs=planned, rates=tuple(tune)
            ),
            recipe=SavedRecipe.model_validate(finite(self.recipe.to_dict())),
            environment=environments[0] if environments else {},
            data=finite(next(iter(self.statistics.values()))),
            folds=tuple(self._folds()),
            arms=tuple(self._arm(arm) for arm in self.arms),
            rows=rows,
            failed=tuple(
                self._failure(run) for run in [*self.trials, *(self.grid or self.runs)] if run.folder in self.failed
            ),
            selection=self.selection,
            tuning=tuple(self._trial(run) for run in self.trials if run.finished() or run.folder in self.failed),
            grid=tuple(grid_entries(self.grid, self.metric, self.failed)),
            summary=summarise(rows),
            correlations={arm: maps for arm, maps in self.maps.items() if maps},
            probes=collect_probes(finished),
            looks=self.looks,
        )
        own = own_encodings_of(arm.recipe for arm in self.arms)
        optional = {
            "baseline": compare.reference if compare else None,
            "budget": self.budget,
            "own_encodings": own,
            "notes": notes,
            "bleu_signature": self._signature(finished),
        }
        results = _finite(made.having(**{key: value for key, value in optional.items() if value}))
        return _finite(results.having(**conclusions(results)))

    def _signature(self, finished: list[Run]) -> str | None:
        """Return sacrebleu's signature of bleu; None where bleu was not computed."""
        return finished[0].metrics().get("bleu_signature") if finished else None

    @property
    def metric(self) -> str:
        """The headline metric."""
        return metric_of(self.recipe.data.task, self.recipe.training)

    @property
    def selection(self) -> str:
        """The metric by which trials, and the checkpoint of each run, are judged on the validation split."""
        return str(self.recipe.training.get("metric_for_best_model") or "loss")

    @property
    def split(self) -> str:
        """The split on which scores are reported."""
        return "test" if "test" in next(iter(self.statistics.values())) else "validation"

    @property
    def protocol(self) -> str:
        """The protocol of the scores: one of data.protocol, or "validation-only" where there is no test split."""
        return self.recipe.data.protocol if self.split == "test" else VALIDATION_ONLY

    def _folds(self) -> list[FoldData]:
        """Return each fold's fingerprint and documents; "data" holds those of the first one."""
        return [
            FoldData(
                fold=fold,
                fingerprint=own["fingerprint"],
                documents={split: own[split]["documents"] for split in SPLITS if split in own},
            )
            for fold, own in self.statistics.items()
            if fold is not None
        ]

    def _look_into(self, run: Run) -> None:
        # Cost comes from the first finished seed of each arm and fold, the maps from that of each arm.
        if (run.arm, run.fold) not in self.costs:
            self.costs[run.arm, run.fold] = self.pipeline.cost(run.recipe, run.folder / MODEL)
        if run.arm not in self.maps:
            self.maps[run.arm] = self.pipeline.correlation(run.recipe, run.folder / MODEL)

    def _row(self, run: Run) -> Row:
        metrics, cost = run.metrics(), self.costs[run.arm, run.fold]
        scores = {name: value for name, value in run.scores().items() if isinstance(value, int | float)}
        points = [(point["step"], point.get("validation_loss")) for point in run.curve()]
        row = {
            "arm": run.arm,
            "seed": run.seed,
            **_fold(run),
            "status": "finished",
            "parameters": cost["parameters"]["total"],
            "flops_per_token": cost["flops_per_token"],
            "tokens_per_second": metrics.get("tokens_per_second"),
            "peak_memory_bytes": metrics.get("peak_memory_bytes"),
            **{name: scores.get(name) for name in dict.fromkeys(["loss", "perplexity", "accuracy", *scores])},
            "validation_loss": metrics["validation"]["loss"],
            f"validation_{self.metric}": metrics["validation"].get(self.metric),
            "learning_rate": run.recipe.training.get("learning_rate"),
            "steps": metrics.get("steps"),
            "best_step": metrics.get("best_step"),
            "train_seconds": metrics.get("train_seconds"),
            **({"batches": metrics["batches"]} if "batches" in metrics else {}),
            # a stop and a resume may write one step twice: the later one counts
            "curve": [list(point) for point in dict(p for p in points if p[1] is not None).items()],
            "model": (run.folder / MODEL).relative_to(self.folder).as_posix(),
        }
        return Row.model_validate(row)

    def _arm(self, arm: Arm) -> ArmResult:
        none: Mapping[str, Any] = {}
        cost = next((found for (name, _), found in self.costs.items() if name == arm.name), none)
        rates = [run.recipe.training.get("learning_rate") for run in self.runs if run.arm == arm.name]
        configured = {own.name: own.overrides for own in self.recipe.compare.arms} if self.recipe.compare else {}
        return ArmResult(
            name=arm.name,
            encoding=arm.recipe.model.get("encoding"),
            overrides=finite(configured.get(arm.name, {})),
            learning_rate=rates[0] if rates else None,
            parameters=dict(cost.get("parameters", {})) or None,
            encoding_parameters=dict(cost.get("encoding_parameters", {})),
            flops_per_token=cost.get("flops_per_token"),
        )

    def _trial(self, run: Run) -> Trial:
        reason = self.failed.get(run.folder)
        status = {"status": "finished"} if reason is None else {"status": "failed", "reason": reason}
        measured = {name: run.validation(name) if reason is None else None for name in ("loss", self.selection)}
        names = {"arm": run.arm, "learning_rate": run.trial, "seed": run.seed, **_fold(run)}
        return Trial.model_validate({**names, **measured, **status})

    def _failure(self, run: Run) -> Failure:
        return Failure(
            arm=run.arm,
            seed=run.seed,
            **_fold(run),
            status="failed",
            stage=self._stage(run),
            learning_rate=run.recipe.training.get("learning_rate"),
            reason=self.failed[run.folder],
        )

    def _stage(self, run: Run) -> str:
        if run.trial is not None:
            return "tuning"
        return "seeds" if any(run.folder == own.folder for own in self.runs) else "grid"


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


def _notes_on_machines(environments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note on the conditions between which speeds do not compare; [] if there is only one."""
    counts = Counter(tuple(own.get(name) for name in MACHINE) for own in environments)
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


def _fold(run: Run) -> dict[str, int]:
    return {} if run.fold is None else {"fold": run.fold}


def _finite(results: Results) -> Results:
    """Return results whose numbers that are none, such as the loss of a run that diverged, are None."""
    return Results.model_validate(finite(results.as_json()))


def conclusions(results: Results) -> dict[str, object]:
    """Return the conclusions from the rows of a results file by key: how the arms compare, and how early they learn.

    Args:
        results: with its rows.
    """
    tested = compare_arms(results)
    return {
        "comparisons": tested.comparisons,
        "significance": tested.significance,
        "steps_to_loss": steps_to_loss(results),
    }


def collect_probes(runs: Iterable[Run]) -> dict[str, ProbeResult]:
    """Return results.json's "probes": for each probe its axes, the rows of all runs, and why others have none.

    Args:
        runs: the finished ones that count; what of theirs is not measured yet is left out.
    """
    found: dict[str, ProbeResult] = {}
    for run in runs:
        for name, given in run.probes.items():
            content = read_probe(run.folder, name)
            as_read: object = json.loads(json.dumps(given, default=str))
            if content is None or content.get("given") != as_read:
                continue
            axes = {axis: content.get(axis) for axis in AXES}
            options: object = content.get("options", {})
            probe = found.get(name) or ProbeResult.model_validate(
                {**axes, "options": options, "rows": (), "skipped": (), "notes": ()}
            )
            found[name] = _with_run(probe, run, content)
    return found


def _with_run(probe: ProbeResult, run: Run, content: Mapping[str, Any]) -> ProbeResult:
    of_run = {"arm": run.arm, "seed": run.seed, **_fold(run)}
    rows = [ProbeRow.model_validate({**of_run, **row}) for row in content.get("rows", ())]
    notes = [note for note in content.get("notes", ()) if note not in probe.notes]
    reason = content.get("skipped")
    skipped = [Skipped(arm=run.arm, reason=reason)] if reason else []
    # every seed of an arm has the same reason where its encoding is the reason
    skipped = [one for one in skipped if one not in probe.skipped]
    return probe.having(rows=(*probe.rows, *rows), skipped=(*probe.skipped, *skipped), notes=(*probe.notes, *notes))
