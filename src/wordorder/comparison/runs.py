"""One training inside a comparison: where it lies, whether it is finished, and what recipe made it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.comparison.arms import RATE
from wordorder.durable import write_json
from wordorder.errors import BadInput
from wordorder.training import curve
from wordorder.training.pretrained import weights_content
from wordorder.training.run import METRICS, differences

if TYPE_CHECKING:
    from wordorder.comparison.arms import Arm
    from wordorder.training import Recipe

IDENTITY = "arm.json"
"""Written into a run's folder before its training starts: what the folder was made by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training: an arm with a seed, or with a learning rate that is being tried."""

    arm: str
    seed: int
    recipe: Recipe
    folder: Path
    trial: float | None = None
    """The learning rate that is being tried; None for a run that counts."""
    rate: float | None = None
    """The learning rate of a grid that the run belongs to; None outside a grid."""

    @property
    def label(self) -> str:
        """What a progress line calls the run."""
        if self.trial is not None:
            return f"{self.arm}, rate {self.trial:g}"
        rate = "" if self.rate is None else f", rate {self.rate:g}"
        return f"{self.arm}{rate}, seed {self.seed}"

    def finished(self) -> bool:
        """Whether the training is done; metrics.json is the last file that it writes."""
        return (self.folder / METRICS).is_file()

    def metrics(self) -> dict[str, Any]:
        """Return what the finished training measured."""
        return json.loads((self.folder / METRICS).read_text("utf-8"))

    def curve(self) -> list[dict[str, Any]]:
        """Return the lines of curve.jsonl written so far; a half-written last line is left out."""
        return curve.read(self.folder)

    def validation(self, metric: str) -> float | None:
        """Return a score of the best checkpoint on the validation split; None where it is not a number."""
        value = self.metrics()["validation"].get(metric)
        return float(value) if value is not None and math.isfinite(value) else None

    def scores(self) -> dict[str, Any]:
        """Return the scores that are reported: those on the test split, or on validation where there is no test."""
        metrics = self.metrics()
        return metrics.get("test") or metrics["validation"]


def run_recipe(arm: Arm, seed: int, rate: float | None) -> Recipe:
    """Return an arm's recipe for one seed, which may decide the folder that it starts from, and one learning rate."""
    changes: dict[str, Any] = {"training.seed": seed}
    return arm.recipe.with_overrides(changes if rate is None else {**changes, RATE: rate})


def claim(run: Run, statistics: Mapping[str, Any]) -> None:
    """Write into the run's folder what it is made by, so that a later comparison can tell."""
    run.folder.mkdir(parents=True, exist_ok=True)
    write_json(run.folder / IDENTITY, identity(run, statistics))


def identity(run: Run, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that the run's numbers depend on: arm, seed, recipe without its [compare], and the data's content."""
    recipe = {name: table for name, table in run.recipe.to_dict().items() if name != "compare"}
    recipe["training"] = {**recipe["training"], "seed": run.seed}
    found = {"arm": run.arm, "recipe": recipe, "data": statistics["fingerprint"]}
    if run.recipe.pretrained is not None:
        found["weights"] = weights_content(Path(run.recipe.pretrained))
    return json.loads(json.dumps(found, default=str))  # as it will be read back: tuples are lists


def check_folders(runs: Iterable[Run], statistics: Mapping[str, Any], *, skip: frozenset[str] = frozenset()) -> None:
    """Refuse folders that hold something other than the run that is meant to lie there.

    Args:
        runs: the trainings that are planned.
        statistics: of the prepared data; another fingerprint means that the corpus was changed under its name.
        skip: names of [training] whose difference does not count, because they are chosen later.

    Raises:
        BadInput: a folder was made by a different recipe (every differing name is listed), or by something else.
    """
    faults = [fault for run in runs for fault in _folder_faults(run, statistics, skip)]
    if faults:
        raise BadInput(faults)


def _folder_faults(run: Run, statistics: Mapping[str, Any], skip: frozenset[str]) -> list[str]:
    path = run.folder / IDENTITY
    if not path.is_file():
        if run.folder.is_dir() and any(not child.name.startswith(".") for child in run.folder.iterdir()):
            return [f"{run.folder} holds files of something else than a comparison; remove it or choose another folder"]
        return []
    try:
        there: dict[str, Any] = json.loads(path.read_text("utf-8"))
        found = _differences(there, identity(run, statistics), skip)
    except (ValueError, KeyError, TypeError, AttributeError):
        return [f"{path} cannot be read; remove the folder {run.folder}"]
    if not found:
        return []
    return [
        f"{run.folder} was made by a different recipe: {'; '.join(found)}; "
        "remove it or choose another folder with --set training.output_dir=FOLDER"
    ]


def _differences(there: Mapping[str, Any], here: Mapping[str, Any], skip: frozenset[str]) -> list[str]:
    def fixed(recipe: Mapping[str, Any]) -> dict[str, Any]:
        training = {name: value for name, value in recipe["training"].items() if name not in skip}
        return {**recipe, "training": training}

    # training decides which names matter, so that --resume and a comparison never disagree
    found = differences(fixed(there["recipe"]), fixed(here["recipe"]))
    if there["arm"] != here["arm"]:
        found.insert(0, f"the arm was {there['arm']!r}, now {here['arm']!r}")
    if there["data"] != here["data"]:
        found.append("the data changed under its name (its texts, classes or tokens are others)")
    if there.get("weights") != here.get("weights"):
        found.append("the saved model that it starts from changed under its name (its weights are others)")
    return found
