"""The trainings of a comparison: their folders and recipes, and the search for the learning rates of each arm."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from wordorder.comparison.arms import own_classes_of
from wordorder.comparison.probes.measure import is_measured
from wordorder.comparison.results_file import GridEntry
from wordorder.comparison.statistics.curves import at_edge
from wordorder.comparison.statistics.summary import lower_is_better, median_and_range
from wordorder.errors import BadInput
from wordorder.files import read_json
from wordorder.own_classes import REGISTRIES
from wordorder.training.recipe.pretrained import file_content, find_word_vectors, weights_content
from wordorder.training.runs.folder import IDENTITY, METRICS, read_metrics
from wordorder.training.runs.run import differences

if TYPE_CHECKING:
    from wordorder.comparison.arms import Arm
    from wordorder.training import CompareConfig, Recipe


Json = Mapping[str, Any]
"""An object of a JSON file of training or of a probe, as it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training: an arm with a seed, on a fold where there are folds, or with a learning rate that is tried."""

    arm: str
    seed: int
    recipe: Recipe
    folder: Path
    trial: Rates | None = None
    """The learning rates that are being tried; None for a run that counts."""
    rate: float | None = None
    """The learning rate of a grid that the run belongs to; None outside a grid."""
    fold: int | None = None
    """The fold of a cross-validation that is its test part; None where the comparison names no folds."""
    probes: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Name -> options of the probes of the trained model, `compare.probes`; empty for a learning rate's trial."""

    @property
    def label(self) -> str:
        """Name of the run in a progress line."""
        fold = "" if self.fold is None else f", fold {self.fold}"
        if self.trial is not None:
            return f"{self.arm}, rate {self.trial.words}{fold}, seed {self.seed}"
        rate = "" if self.rate is None else f", rate {self.rate:g}"
        return f"{self.arm}{rate}{fold}, seed {self.seed}"

    def finished(self) -> bool:
        """Tell whether the training is done; metrics.json is the last file that it writes."""
        return (self.folder / METRICS).is_file()

    def to_probe(self) -> list[str]:
        """Return the names of the probes that are not measured yet, or whose measurement failed."""
        return [name for name, options in self.probes.items() if not is_measured(self.folder, name, options)]

    def at_work(self) -> str:
        """Return the name of the run in a progress line while it is worked on, with the probe that is next."""
        probes = self.to_probe() if self.finished() else []
        return f"{self.label}, probe {probes[0]}" if probes else self.label


def validation_score(metrics: Json, metric: str) -> float | None:
    """Return a score of the best checkpoint on the validation split; None where it is not a number."""
    value = metrics["validation"].get(metric)
    return float(value) if value is not None and math.isfinite(value) else None


def scores_of(metrics: Json) -> Json:
    """Return the scores that are reported: those on the test split, or on validation if there is no test."""
    return metrics.get("test") or metrics["validation"]


Metrics = Mapping[Path, Json]
"""Run folder -> metrics.json, of the finished runs."""

Statistics = Mapping[int | None, Json]
"""Fold -> statistics of its prepared data; the key None where there are no folds."""


def metrics_of(runs: Iterable[Run]) -> Metrics:
    """Return the metrics of those runs that are finished."""
    return {run.folder: read_metrics(run.folder) for run in runs if run.finished()}


def runs_of(
    arms: Sequence[Arm],
    config: CompareConfig,
    folder: Path,
    *,
    rates: Sequence[float | None] = (None,),
    chosen: Mapping[str, Rates] | None = None,
) -> list[Run]:
    """Return the runs of every arm with every seed, fold and rate; of no grid, with the rate that tuning chose.

    Seeds outside, then folds, arms inside: a comparison that is stopped early has compared all arms on the first ones.
    """
    runs: list[Run] = []
    for seed, fold, rate, arm in product(config.seeds, config.folds or (None,), rates, arms):
        parts = [arm.name, *([] if rate is None else [f"rate-{rate:g}"]), *([] if fold is None else [f"fold-{fold}"])]
        tuned = (chosen or {}).get(arm.name) if rate is None else Rates(rate)
        run = _run(arm, seed, tuned, fold, folder.joinpath(*parts, f"seed-{seed}"))
        runs.append(replace(run, rate=rate, probes=config.probes))
    return runs


def trials_of(arm: Arm, config: CompareConfig, folder: Path, trials: Iterable[tuple[Rates, int]]) -> list[Run]:
    """Return the trials of an arm with these rates and seeds, on the first fold."""
    fold = config.folds[0] if config.folds else None
    runs: list[Run] = []
    for rates, seed in trials:
        name = f"tune-{rates.words.replace(' ', '-')}{f'-seed-{seed}' if len(config.tune_seed) > 1 else ''}"
        runs.append(replace(_run(arm, seed, rates, fold, folder / arm.name / name), trial=rates))
    return runs


def _run(arm: Arm, seed: int, rates: Rates | None, fold: int | None, folder: Path) -> Run:
    """Return a run with the arm's recipe for its seed (which may name the folder that it starts from), rates, fold."""
    recipe = arm.recipe.with_run(seed=seed, rate=rates and rates.rate, factor=rates and rates.factor, fold=fold)
    return Run(arm=arm.name, seed=seed, recipe=recipe, folder=folder, fold=fold)


def identity(run: Run, statistics: Json) -> dict[str, Any]:
    """Return all that the run's numbers depend on: arm, seed, recipe without [compare], content of data and files."""
    recipe = {name: table for name, table in run.recipe.to_dict().items() if name != "compare"}
    recipe["training"] = {**recipe["training"], "seed": run.seed}
    found = {"arm": run.arm, "recipe": recipe, "data": statistics["fingerprint"]}
    if run.recipe.pretrained is not None:
        found["weights"] = weights_content(Path(run.recipe.pretrained))
    named = run.recipe.model.get("word_vectors")
    vectors = find_word_vectors(named)[0] if named else None
    if vectors is not None and vectors.is_file():
        found["word_vectors"] = file_content(vectors)
    found |= own_classes_of([run.recipe])
    return json.loads(json.dumps(found, default=str))  # as it will be read back: tuples are lists


def check_folders(runs: Iterable[Run], statistics: Statistics, *, skip: frozenset[str] = frozenset()) -> None:
    """Refuse folders that hold something other than the run that is meant to lie there."""
    folders: dict[str, list[Path]] = {}
    for run in runs:
        if reason := _folder_fault(run, statistics[run.fold], skip):
            folders.setdefault(reason, []).append(run.folder)
    faults: list[str] = []
    for reason, (first, *others) in folders.items():  # one changed setting is a fault of every run, and one line
        more = f" (and {len(others)} more run folder{'s' * (len(others) > 1)})" if others else ""
        faults.append(f"{first}{more} {reason}")
    if faults:
        raise BadInput(faults)


def _folder_fault(run: Run, statistics: Json, skip: frozenset[str]) -> str | None:
    path = run.folder / IDENTITY
    if not path.is_file():
        if run.folder.is_dir() and any(not child.name.startswith(".") for child in run.folder.iterdir()):
            return "holds files of something else than a comparison; remove it or choose another folder"
        return None
    try:
        found = _differences(read_json(path), identity(run, statistics), skip)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"has an {IDENTITY} that cannot be read; remove the folder"
    asked = "remove it or choose another folder with --set training.output_dir=FOLDER"
    return f"was made by a different recipe: {'; '.join(found)}; {asked}" if found else None


def _differences(there: Json, here: Json, skip: frozenset[str]) -> list[str]:
    def fixed(recipe: Json) -> dict[str, Any]:
        training = {name: value for name, value in recipe["training"].items() if name not in skip}
        return {**recipe, "training": training}

    # training decides which names matter, so that --resume and a comparison never disagree
    found = differences(fixed(there["recipe"]), fixed(here["recipe"]))
    if there["arm"] != here["arm"]:
        found.insert(0, f"the arm was {there['arm']!r}, now {here['arm']!r}")
    if there["data"] != here["data"] and there["recipe"]["data"]["source"] == here["recipe"]["data"]["source"]:
        found.append("the data changed under its name (its texts, classes or tokens are others)")
    for key, registry in REGISTRIES.items():
        if there.get(key) != here.get(key):
            files = {source["file"] for side in (there, here) for source in side.get(key, {}).values()}
            found.append(f"the file of your own {registry.title} was changed ({', '.join(sorted(files))})")
    if there.get("weights") != here.get("weights"):
        found.append("the saved model that it starts from changed under its name (its weights are others)")
    vectors = {side["word_vectors"] for side in (there, here) if "word_vectors" in side}
    if len(vectors) == 2:  # the file may be gone when all is trained
        found.append("the file of model.word_vectors changed under its name (its content is another)")
    return found


def trial_scores(runs: Iterable[Run], metrics: Metrics, metric: str) -> dict[str, dict[Rates, dict[int, Score | None]]]:
    """Return by arm the scores of trials that are finished, or failed; see `Scores`."""
    sign = 1 if lower_is_better(metric) else -1
    found: dict[str, dict[Rates, dict[int, Score | None]]] = {}
    for run in runs:
        assert run.trial is not None
        own = metrics.get(run.folder)
        value, loss = (None, None) if own is None else (validation_score(own, name) for name in (metric, "loss"))
        score = None if value is None else Score(sign * value, math.inf if loss is None else loss)
        found.setdefault(run.arm, {}).setdefault(run.trial, {})[run.seed] = score
    return found


GridScores = dict[str, dict[float, dict[str, float]]]
"""Arm -> learning rate -> seed (and fold) -> score on the validation split."""


def scores_by_rate(runs: Iterable[Run], metrics: Metrics, metric: str) -> GridScores:
    """Return the scores of the finished runs of a grid, where they are numbers."""
    found: GridScores = {}
    for run in runs:
        assert run.rate is not None
        own = found.setdefault(run.arm, {}).setdefault(run.rate, {})
        value = validation_score(metrics[run.folder], metric) if run.folder in metrics else None
        if value is not None:
            own[str(run.seed) if run.fold is None else f"{run.seed}, fold {run.fold}"] = value
    return found


def best_rates(scores: GridScores, metric: str) -> dict[str, float]:
    """Return each arm's rate: of those with the most finished seeds, the one with the best median, as TUPE for GLUE.

    Of equals the smaller one. Ke et al. 2021, https://arxiv.org/abs/2006.15595, Appendix B. Where the rate is chosen on
    the split that is reported, as there, the result is optimistic.
    """
    sign = 1 if lower_is_better(metric) else -1

    def order(seeds: Mapping[str, float]) -> tuple[int, float, float]:
        return rank([Score(sign * value) for value in seeds.values()])

    return {arm: min(sorted(rates), key=lambda rate: order(rates[rate])) for arm, rates in scores.items()}


def grid_entries(runs: Sequence[Run], metrics: Metrics, metric: str, failed: Mapping[Path, str]) -> list[GridEntry]:
    """Return results.json's "grid": per arm and rate the validation metric of each seed and its median."""
    scores = scores_by_rate(runs, metrics, metric)
    chosen, lost = best_rates(scores, metric), Counter((run.arm, run.rate) for run in runs if run.folder in failed)
    return [
        GridEntry(
            arm=arm,
            learning_rate=rate,
            chosen=chosen[arm] == rate,
            failed=lost[arm, rate],
            seeds=seeds,
            **median_and_range(seeds.values()),
        )
        for arm, rates in scores.items()
        for rate, seeds in rates.items()
    ]


class Rates(NamedTuple):
    """The learning rates of one trial."""

    rate: float
    """`training.learning_rate`."""
    factor: float | None = None
    """`training.encoding_learning_rate`; None leaves it as the arm has it."""

    @property
    def words(self) -> str:
        """The rates as tables and folders name them: "0.002" or "0.002 x4"."""
        return f"{self.rate:g}" if self.factor is None else f"{self.rate:g} x{self.factor:g}"


class Score(NamedTuple):
    """The validation score of one trial, of which less is better."""

    score: float
    loss: float = 0.0
    """The validation loss, which decides between equal scores: many rates may reach an accuracy of 1."""


Scores = Mapping[Rates, Mapping[int, Score | None]]
"""Rates -> tuning seed -> score; None for a trial that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The search for the rates of one arm: a grid that is halved from seed to seed, and extended at its edges.

    On the first tuning seed all rates are tried, on each further one the better half by the median so far (successive
    halving, Jamieson and Talwalkar 2016, https://arxiv.org/abs/1502.07943). Where the best stand at an edge of the
    grid, the next values beyond, in the ratio of the last two, are tried on all tuning seeds; at most `extend` times.
    """

    rates: tuple[float, ...]
    factors: tuple[float | None, ...]
    seeds: tuple[int, ...]
    extend: int = 0

    def next_trials(self, scores: Scores) -> list[tuple[Rates, int]]:
        """Return the trials (rates, seed) that come next, from the scores of those before; [] at the end."""
        left = [Rates(*pair) for pair in product(self.rates, self.factors)]

        def order(one: Rates) -> tuple[int, float, float]:
            return rank(scores.get(one, {}).values())

        for number, seed in enumerate(self.seeds):
            if missing := [(one, seed) for one in left if seed not in scores.get(one, {})]:
                return missing
            if number + 1 < len(self.seeds):
                left = sorted(left, key=order)[: math.ceil(len(left) / 2)]
        rates, factors = list(self.rates), [factor for factor in self.factors if factor is not None]
        for _ in range(self.extend):
            best = min(left, key=order)
            sides = [best.rate, *_beyond(best.rate, rates)], [best.factor, *_beyond(best.factor, factors)]
            found = [Rates(*pair) for pair in product(*sides)][1:]
            if missing := [(one, seed) for one in found for seed in self.seeds if seed not in scores.get(one, {})]:
                return missing
            left += found
            rates += [one.rate for one in found]
            factors += [one.factor for one in found if one.factor is not None]
        return []


def best_of(scores: Scores) -> Rates | None:
    """Return the best rates of those that were tried on the most seeds; None if no trial gave a score."""
    known = [one for one, seeds in scores.items() if any(value is not None for value in seeds.values())]
    return min(sorted(known), key=lambda one: rank(scores[one].values()), default=None)


def rank(scores: Iterable[Score | None]) -> tuple[int, float, float]:
    """Return the key by which rates are sorted, best first: seeds with a score, then their median, then the loss's.

    Rates that a seed could not be trained with, and those left out after the first seeds, lose against the others.
    """
    values = [value for value in scores if value is not None]
    if not values:
        return 0, math.inf, math.inf
    return -len(values), median(value.score for value in values), median(value.loss for value in values)


def _beyond(value: float | None, tried: Sequence[float]) -> list[float]:
    """Return the next value beyond the edge that a value stands at, in the ratio of the last two; [] inside."""
    known = sorted(set(tried))
    if value is None or not at_edge(value, known):
        return []
    last, before = (known[0], known[1]) if value == known[0] else (known[-1], known[-2])
    return [float(f"{last * last / before:.6g}")]
