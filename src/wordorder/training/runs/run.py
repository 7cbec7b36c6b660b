"""Run a recipe: prepare the data, build the model, train it, test it, and leave a folder that documents the run."""

import re
import sys
import tomllib
import warnings
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.errors import BadInput, RunFailed, WordOrderError
from wordorder.files import is_url, of_the_system, one_line, read_model, read_toml, restore_replaced
from wordorder.launch import is_main, process_count, process_index
from wordorder.streams import printable
from wordorder.training.checkpoints.checkpoint import (
    MANIFEST,
    checkpoints,
    find_newest,
    hidden_leftovers,
    last_good,
    run_folder_fault,
)
from wordorder.training.loop.interruption import stopping_at_once
from wordorder.training.recipe.pretrained import ARM
from wordorder.training.recipe.recipe import Recipe
from wordorder.training.recipe.settings import looks
from wordorder.training.runs import folder as files
from wordorder.training.runs.folder import Data, RunResult, locked, read_result

if TYPE_CHECKING:
    from wordorder.data import PreparedData
    from wordorder.training.loop.progress import Progress


_LOGS = (".log", ".out", ".err")  # such as train.log and slurm-123.out; no file of a run ends so
_FIRST_FILES = (files.IDENTITY, files.CURVE, files.RECIPE, files.DATA, files.ENVIRONMENT)
_BEGUN = re.compile(rf"\.(?:{'|'.join(map(re.escape, _FIRST_FILES))})\.\d+|\.probe-\d+")


def run(
    recipe: Recipe,
    *,
    output_dir: Path | None = None,
    resume: bool = False,
    progress: "bool | Progress" = True,
    prepared: "PreparedData | None" = None,
    seed: int | None = None,
) -> RunResult:
    """Train, evaluate and test a model as a recipe says.

    The run folder then holds recipe.toml (resolved), data.json, environment.json, curve.jsonl, logs/, checkpoint-N/,
    model/ and, written last, metrics.json; where the recipe names a saved model to start from, also pretrained.json,
    which says which weights are new.

    Args:
        recipe: from `read_recipe`.
        output_dir: the run folder; None takes the recipe's.
        resume: go on from the newest valid checkpoint; start anew when there is none; only read the result of a
            finished run.
        progress: whether to show progress on stderr; or what to tell it to.
        prepared: the data, when the caller has prepared it already for this seed.
        seed: of the weights, the order of the batches, the training masks and dropout; None takes training.seed.

    Raises:
        BadInput: the recipe, the data or the run folder is wrong, or another process writes into the folder; nothing
            was started or changed.
        RunFailed: the loss is no longer finite, memory or the disk is full; the last good checkpoint is kept.
        Stopped: one of `SIGNALS` while it trained, and the state was saved; or one but SIGINT before or after, when
            there is nothing to save.
    """
    if ARM in str(recipe.raw["model"].get("pretrained")):
        raise BadInput(
            f"model.pretrained: {recipe.raw['model']['pretrained']} has a folder for each arm; use wordorder compare, "
            "or name one by --set model.pretrained=..."
        )
    place = recipe.training.output_dir if output_dir is None else str(output_dir)
    if is_url(place):
        raise BadInput(f"training.output_dir: {place}: only a comparison writes to an object store; name a folder")
    with stopping_at_once():
        recipe = recipe.with_run(seed=seed, output_dir=None if output_dir is None else Path(output_dir))
        folder = recipe.output_dir
        if fault := run_folder_fault(folder):
            raise BadInput(fault)
        _check_ours(recipe, folder, resume=resume)
        with locked(folder) if is_main() else nullcontext():
            return _run_alone(recipe, folder, resume=resume, progress=progress, prepared=prepared)


def _run_alone(
    recipe: Recipe, folder: Path, *, resume: bool, progress: "bool | Progress", prepared: "PreparedData | None"
) -> RunResult:
    if is_main():
        restore_replaced(folder)  # before anybody asks which checkpoints there are
    _check_folder(recipe, folder, resume=resume)
    if (folder / files.METRICS).exists():
        result, metrics = read_result(folder), folder / files.METRICS
        _say(progress, folder, f"was finished before; nothing is trained, this is its result ({metrics})")
        return result
    prepared = prepared if prepared is not None else _prepare(recipe)
    _check_data(prepared, folder)
    _check_metric(recipe, prepared)
    from wordorder.training.runs.fit import train_and_test

    if progress is True and (few := few_examples(prepared.statistics)):  # a comparison says it itself
        _say(progress, folder, few)
    start = _start(folder, progress) if resume else None
    try:
        return train_and_test(recipe, prepared, folder, start=start, shown=progress)
    except WordOrderError:
        raise
    except Exception as error:
        if not of_the_system(error):
            raise
        raise RunFailed(f"{folder}: {error}; {last_good(folder)}; --resume goes on") from error


def _start(folder: Path, progress: "bool | Progress") -> Path | None:
    newest: str | None = None
    if is_main():
        found = find_newest(folder)
        newest = None if found.newest is None else str(found.newest)
        here = f"starts anew: {folder} holds no whole checkpoint" if newest is None else f"goes on from {newest}"
        passed = [f"{path.name} is passed over: {fault}" for path, fault in found.passed_over]
        _say(progress, folder, "; ".join([here, *passed]), unusual=bool(passed))
    if process_count() > 1:
        from wordorder.training.loop.accelerate import Processes

        newest = Processes(process_index(), process_count()).everyones(newest)[0]
    return None if newest is None else Path(newest)


def _say(progress: "bool | Progress", folder: Path, text: str, *, unusual: bool = False) -> None:
    """Show one line before there is a bar; an unusual one is a warning for those who asked for silence."""
    if not is_main():
        return
    if progress is True:
        print(printable(f"{folder.name}: {text}"), file=sys.stderr, flush=True)
    elif progress is not False:
        progress.say(text)
    elif unusual:
        warnings.warn(f"{folder.name}: {text}", stacklevel=5)


def _prepare(recipe: Recipe) -> "PreparedData":
    from wordorder.tasks import prepare
    from wordorder.training.loop.accelerate import first_process_first

    with first_process_first():
        return prepare(recipe.data, recipe.task, recipe.tokenizer, seed=recipe.training.seed)


def _check_ours(recipe: Recipe, folder: Path, *, resume: bool) -> None:
    if resume and (folder / files.METRICS).is_file():
        return  # nothing is written
    if not _is_ours(folder):
        found = sorted(path.name for path in folder.iterdir())
        if "results.json" in found:
            raise BadInput(
                f"training.output_dir: {str(folder)!r} holds a comparison; go on with it by wordorder compare, or name"
                " another folder for the run by --output-dir FOLDER"
            )
        raise BadInput(
            f"training.output_dir: {str(folder)!r} is not empty and holds no run ({', '.join(found[:4])}"
            f"{', ...' * (len(found) > 4)}), so nothing is written into it; name another folder by"
            " --set training.output_dir=..."
        )
    if recipe.pretrained and Path(recipe.pretrained).resolve().is_relative_to((folder / files.MODEL).resolve()):
        raise BadInput(
            f"model.pretrained: {recipe.pretrained} is where the run would save its own model; name another folder by"
            " --set training.output_dir=..."
        )


def _is_ours(folder: Path) -> bool:
    if not folder.exists():
        return True
    # half-written files of a killed run have hidden names; a shell or a scheduler puts its log there beforehand
    names = {path.name for path in folder.iterdir() if path.is_dir() or path.suffix not in _LOGS}
    there = {name for name in names if not name.startswith(".")} - {files.IDENTITY}
    if there <= {files.CURVE}:  # a run begins with an empty curve, and writes the data's fingerprint next
        # what is cleaned away must be a run's own: this early it has left half-written files alone
        foreign = [path for path in hidden_leftovers(folder) if not _BEGUN.fullmatch(path.name)]
        return not foreign and (not there or (folder / files.CURVE).stat().st_size == 0)
    with suppress(OSError, ValueError):
        if read_model(folder / files.DATA, Data).fingerprint:
            return True
    return any((path / MANIFEST).is_file() and not path.is_symlink() for _, path in checkpoints(folder))


def _check_folder(recipe: Recipe, folder: Path, *, resume: bool) -> None:
    if not resume:
        if (folder / files.METRICS).exists() or checkpoints(folder):
            raise BadInput(
                f"training.output_dir: {str(folder)!r} already holds a run; go on with it by --resume, remove it, "
                "or name another folder by --set training.output_dir=..."
            )
        return
    path = folder / files.RECIPE
    if not path.exists() and not checkpoints(folder):
        return
    try:
        before = read_toml(path)
    except (OSError, ValueError) as error:
        raise BadInput(_not_comparable(path, error)) from None
    now = tomllib.loads(recipe.to_toml())
    faults = differences(before, now)
    if faults:
        raise BadInput([f"--resume: {fault}; {folder} was made with the former" for fault in faults])


def _check_data(prepared: "PreparedData", folder: Path) -> None:
    """Refuse to resume with other data under the same name: the recipe alone does not show it."""
    if not checkpoints(folder):
        return
    path = folder / files.DATA
    try:
        before = read_model(path, Data).fingerprint
    except (OSError, ValueError) as error:
        raise BadInput(_not_comparable(path, error)) from None
    if before != prepared.statistics["fingerprint"]:
        raise BadInput(
            f"--resume: the data has changed since {folder} was made (another fingerprint than in {files.DATA}); "
            "bring the former data back, or start anew in another folder"
        )


def _not_comparable(path: Path, error: Exception) -> str:
    return (
        f"{path}: cannot be read, so the run cannot be resumed: {one_line(error)}; bring the file back, or start anew"
        " in another folder"
    )


def _check_metric(recipe: Recipe, prepared: "PreparedData") -> None:
    classes = len(prepared.label_names)
    if recipe.training.select == "f1" and classes != 2:
        raise BadInput(
            f"training.select: f1 is that of the second of two classes, but the data has {classes}: "
            f"{', '.join(prepared.label_names[:8])}; take macro_f1"
        )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for section in ("data", "task", "tokenizer", "model", "training"):
        old, new = before.get(section, {}), now.get(section, {})
        for name in sorted(old.keys() | new.keys()):
            free = section == "training" and name in looks()
            if not free and old.get(name) != new.get(name):
                found.append(f"{section}.{name} was {old.get(name)!r}, now {new.get(name)!r}")
    return found


FEW = 20
"""Examples of a split below which its scores are called mostly chance."""


def few_examples(statistics: Mapping[str, Any]) -> str | None:
    """Return advice where validation or test have so few examples that their scores are mostly chance.

    Args:
        statistics: of `PreparedData`.
    """
    counts = {name: statistics.get(name, {}).get("segments", 0) for name in ("validation", "test")}
    few = {name: count for name, count in counts.items() if 0 < count < FEW}
    if not few:
        return None
    sizes = " and ".join(f"the {name} split has {n:,} example{'' if n == 1 else 's'}" for name, n in few.items())
    options = " and ".join(f"data.{name}_fraction" for name in few)
    return f"{sizes}, fewer than {FEW}: scores on so few are mostly chance; give more text, or raise {options}"
