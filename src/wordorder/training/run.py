"""One run: prepare the data, build the model, train it, test it, and leave a folder that says how."""

import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.errors import BadInput, RunFailed, WordOrderError
from wordorder.training import curve
from wordorder.training.arguments import NO_EFFECT_ON_RESULTS, with_defaults
from wordorder.training.checkpoint import check_writable, checkpoints, newest_valid
from wordorder.training.pretrained import ARM
from wordorder.training.recipe import Recipe

if TYPE_CHECKING:
    from wordorder.data import PreparedData
    from wordorder.training.progress import Progress

RECIPE, METRICS, ENVIRONMENT, MODEL, LOGS = "recipe.toml", "metrics.json", "environment.json", "model", "logs"
PRETRAINED = "pretrained.json"
"""Where the weights came from, and which are new; only in a run that started from a saved model."""
DATA = "data.json"
"""The statistics of the prepared data; its fingerprint tells a resumed run that the data is still the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a finished run found, and where it is."""

    metrics: dict[str, Any]
    """`validation` and, where there is one, `test`: the task's scores, see `TokenTally`, `ClassTally`, `NumberTally`.

    Beside them: optimistic (whether the part that chose the checkpoint is also the one that is reported),
    train_seconds, tokens (padding left out), tokens_per_second, peak_memory_bytes (see `Meter`), parameters, steps,
    seed, best_step (whose weights `model/` holds), batches (digests of what was trained on, see `FedBatches`); for
    translation bleu_signature (sacrebleu's) and generation (num_beams, max_length).
    """
    model_dir: Path
    """Holds the model and the tokenizer, for `from_pretrained` and `pipeline`."""
    curve: list[dict[str, Any]]
    """Rows of step with loss, learning_rate, grad_norm, train_seconds, tokens; validation_loss ... where evaluated."""


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
        BadInput: the recipe, the data or the run folder is wrong; nothing was started or changed.
        RunFailed: the loss is no longer finite, memory or the disk is full; the last good checkpoint is kept.
        Stopped: SIGINT or SIGTERM; the state was saved.
    """
    if ARM in str(recipe.raw["model"].get("pretrained")):
        raise BadInput(
            f"model.pretrained: {recipe.raw['model']['pretrained']} has a folder for each arm; use wordorder compare, "
            "or name one by --set model.pretrained=..."
        )
    changes: dict[str, Any] = {"training.seed": recipe.training["seed"] if seed is None else seed}
    if output_dir is not None:
        changes["training.output_dir"] = str(output_dir)
    recipe = recipe.with_overrides(changes)
    folder = recipe.output_dir
    fault = check_writable(folder)
    if fault:
        raise BadInput(fault)
    _check_folder(recipe, folder, resume=resume)
    if (folder / METRICS).exists():
        _say(progress, folder, f"was finished before; nothing is trained, this is its result ({folder / METRICS})")
        return read_result(folder)
    prepared = prepared if prepared is not None else _prepare(recipe)
    _check_data(prepared, folder)
    _check_metric(recipe, prepared)
    from wordorder.training.fit import train_and_test

    start = newest_valid(folder) if resume else None
    if resume:
        _say(progress, folder, _where_it_starts(folder, start))
    try:
        return train_and_test(recipe, prepared, folder, start=start, shown=progress)
    except WordOrderError:
        raise
    except OSError as error:
        raise RunFailed(f"{folder}: {error}; --resume goes on from the newest whole checkpoint") from error


def _say(progress: "bool | Progress", folder: Path, text: str) -> None:
    """One line before there is a bar."""
    if progress is True:
        print(f"{folder.name}: {text}", file=sys.stderr, flush=True)
    elif progress is not False:
        progress.say(text)


def _where_it_starts(folder: Path, start: Path | None) -> str:
    """What a resumed run goes on from, and what it passes over."""
    found = [path for _, path in checkpoints(folder)]
    broken = found if start is None else found[found.index(start) + 1 :]
    here = f"starts anew: {folder} holds no whole checkpoint" if start is None else f"goes on from {start}"
    if not broken:
        return here
    names = ", ".join(path.name for path in broken)
    return f"{here}; {names} cannot be used: files are missing or not as they were written"


def read_result(folder: Path) -> RunResult:
    """The result of a finished run.

    Args:
        folder: a run folder that holds metrics.json.
    """
    metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    return RunResult(metrics=metrics, model_dir=folder / MODEL, curve=curve.read(folder))


def _prepare(recipe: Recipe) -> "PreparedData":
    from wordorder.data import prepare

    return prepare(recipe.data, recipe.tokenizer, seed=recipe.training["seed"])


def _check_folder(recipe: Recipe, folder: Path, *, resume: bool) -> None:
    """Refuse to mix two runs in one folder."""
    if not resume:
        if (folder / METRICS).exists() or checkpoints(folder):
            raise BadInput(
                f"training.output_dir: {str(folder)!r} already holds a run; go on with it by --resume, remove it, "
                "or name another folder by --set training.output_dir=..."
            )
        return
    path = folder / RECIPE
    if not path.exists():
        return
    try:
        before = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read, so the run cannot be resumed: {error}") from None
    faults = differences(before, tomllib.loads(recipe.to_toml()))
    if faults:
        raise BadInput([f"--resume: {fault}; {folder} was made with the former" for fault in faults])


def _check_data(prepared: "PreparedData", folder: Path) -> None:
    """Refuse to go on with other data under the same name: the recipe alone does not show it."""
    path = folder / DATA
    if not path.exists() or not checkpoints(folder):
        return
    try:
        before: Any = json.loads(path.read_text(encoding="utf-8"))["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: cannot be read, so the run cannot be resumed: {error}") from None
    if before != prepared.statistics["fingerprint"]:
        raise BadInput(
            f"--resume: the data has changed since {folder} was made (another fingerprint than in {DATA}); "
            "bring the former data back, or start anew in another folder"
        )


def _check_metric(recipe: Recipe, prepared: "PreparedData") -> None:
    """Refuse a metric that only the data shows to be none."""
    classes = len(prepared.label_names)
    if recipe.training.get("metric_for_best_model") == "f1" and classes != 2:
        raise BadInput(
            f"training.metric_for_best_model: f1 is that of the second of two classes, but the data has {classes}: "
            f"{', '.join(prepared.label_names[:8])}; take macro_f1"
        )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two resolved recipes in a way that changes results.

    Args:
        before: the recipe of a run folder.
        now: the recipe that is to go on in it.
    """
    from wordorder.data import DataConfig, TokenizerConfig

    found: list[str] = []
    # An option that an earlier version did not know, or did not write, has its default in what that version wrote.
    kinds: dict[str, Any] = {"data": DataConfig, "tokenizer": TokenizerConfig}
    defaults = {name: {f.name: f.default for f in fields(kind)} for name, kind in kinds.items()}
    defaults["training"] = with_defaults(before.get("training", {}))
    defaults["model"] = _filled_model(before.get("model", {}))
    for section in ("data", "tokenizer", "model", "training"):
        new = now.get(section, {})
        old = {n: v for n, v in defaults.get(section, {}).items() if n in new} | before.get(section, {})
        for name in sorted(old.keys() | new.keys()):
            free = section == "training" and name in NO_EFFECT_ON_RESULTS
            if not free and old.get(name) != new.get(name):
                found.append(f"{section}.{name} was {old.get(name)!r}, now {new.get(name)!r}")
    return found


def _filled_model(table: Mapping[str, Any]) -> dict[str, Any]:
    """[model] of a resolved recipe with its defaults; as it is where it names a network that is not known now."""
    from wordorder.models import NETWORK_TASKS, filled_fields

    if table.get("network") not in NETWORK_TASKS:
        return dict(table)
    return filled_fields(table["network"], table, following="pretrained" not in table)
