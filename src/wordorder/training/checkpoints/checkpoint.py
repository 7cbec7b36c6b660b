"""Write, find, check and remove the checkpoints of a run folder, each of which is whole or absent."""

import re
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError

from wordorder.durable import (
    check_writable,
    damage,
    leftovers,
    of_the_system,
    remove_folder,
    replace_folder,
    restore_replaced,
    seal,
    sync_files,
)
from wordorder.errors import RunFailed
from wordorder.hints import fits, option_faults
from wordorder.limits import one_line, read_json

STATE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-(\d+)")
_SAVING = ".saving-"
_HINTS: dict[str, Any] = {
    "epoch": float | None, "global_step": int, "max_steps": int, "logging_steps": float, "eval_steps": float,
    "save_steps": float, "train_batch_size": int | None, "num_train_epochs": float, "num_input_tokens_seen": int,
    "total_flos": float, "log_history": list[dict[str, Any]], "best_metric": float | None,
    "best_global_step": int | None, "best_model_checkpoint": str | None, "stateful_callbacks": dict[str, Any] | None,
}  # fmt: skip
"""Fields of transformers' TrainerState that a resumed run reads, with their types."""
_NEEDED = ("global_step", "max_steps", "log_history")


def checkpoints(run_folder: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints of a run folder as (step, folder), oldest first, without checking that they are whole.

    Args:
        run_folder: may be missing.
    """
    if not run_folder.is_dir():
        return []
    found = [(match, path) for path in run_folder.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()]
    return sorted((int(match[1]), path) for match, path in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The checkpoint that a run can be resumed from, and the damaged ones after it."""

    newest: Path | None
    """The newest checkpoint whose files are all there and undamaged; None where there is none."""
    passed_over: tuple[tuple[Path, str], ...]
    """Damaged checkpoints after `newest`, or all where there is no whole one, oldest first, each with its faults."""


def find_newest(run_folder: Path) -> Found:
    """Find the newest whole checkpoint, and collect the faults of the damaged ones after it.

    Args:
        run_folder: may be missing.
    """
    passed_over: list[tuple[Path, str]] = []
    for _, path in reversed(checkpoints(run_folder)):
        fault = damage(path) or _state_fault(path)
        if fault is None:
            return Found(newest=path, passed_over=tuple(reversed(passed_over)))
        passed_over.append((path, fault))
    return Found(newest=None, passed_over=tuple(reversed(passed_over)))


def newest_valid(run_folder: Path) -> Path | None:
    """Return the newest checkpoint whose files are all there and undamaged, or None; see `find_newest`.

    Args:
        run_folder: may be missing.
    """
    return find_newest(run_folder).newest


def write_checkpoint(run_folder: Path, step: int, fill: Callable[[Path], None]) -> Path:
    """Make checkpoint-<step>: fill it beside its place, seal it with a manifest, rename it.

    Args:
        run_folder: an existing folder.
        step: steps done.
        fill: writes the checkpoint's files into the folder that it is given.

    Raises:
        RunFailed: a file could not be written, for a full disk for instance; older checkpoints are untouched.
    """
    staging = run_folder / f"{_SAVING}{step}"
    final = run_folder / f"checkpoint-{step}"
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        fill(staging)
        seal(staging)
        replace_folder(staging, final)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        if isinstance(error, SafetensorError) or (isinstance(error, Exception) and of_the_system(error)):
            raise RunFailed(f"checkpoint-{step} could not be saved: {error}; {last_good(run_folder)}") from error
        raise
    return final


def write_model(final: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder that is whole or absent: fill it beside its place, flush it to the disk, rename it.

    Args:
        final: where it belongs; what is there is replaced.
        fill: writes the files into the folder that it is given.

    Raises:
        OSError: a file could not be written; what was there is untouched. Libraries raise errors of their own for a
            full disk, see `durable.of_the_system`.
    """
    staging = final.with_name(f"{_SAVING}{final.name}")
    shutil.rmtree(staging, ignore_errors=True)
    try:
        staging.mkdir()
        fill(staging)
        sync_files(staging)
        replace_folder(staging, final)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def last_good(run_folder: Path) -> str:
    """Return a sentence that names the checkpoint from which a failed run can be resumed.

    Args:
        run_folder: the run folder.
    """
    kept = newest_valid(run_folder)
    return f"the last good checkpoint is {kept}" if kept else "there is no earlier checkpoint"


def rotate(
    run_folder: Path, *, keep: int | None, best: Path | None, always: Collection[Path] = (), step: int | None = None
) -> None:
    """Remove the oldest checkpoints; always keep the newest and the best.

    Args:
        run_folder: the run folder.
        keep: how many to keep at most; None keeps all. With 1, the best is kept beside the newest when they differ.
        best: the checkpoint of the best validation score, if there is one.
        always: checkpoints that are neither removed nor counted.
        step: of the checkpoint that was just written; later ones, which a resumed run passed over as damaged, are
            neither removed nor counted, or they would outlive the one that the run went on from. None: the last. Those
            between the two belong into `always`.
    """
    found = checkpoints(run_folder)
    present = [path for number, path in found if path not in always and (step is None or number <= step)]
    if keep is None or len(present) <= keep:
        return
    kept = {present[-1], *([best] if best is not None and best in present else [])}
    for path in reversed(present):
        if len(kept) < keep:
            kept.add(path)
    for path in present:
        if path not in kept:
            remove_folder(path)


def clean(run_folder: Path) -> None:
    """Remove the half-written and half-removed files and folders of killed runs.

    Args:
        run_folder: an existing folder that no other run is writing to.
    """
    restore_replaced(run_folder)
    for path in (*leftovers(run_folder), *run_folder.glob(f"{_SAVING}*")):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Read the state of the Trainer from a checkpoint.

    Args:
        checkpoint: a valid checkpoint.

    Raises:
        RunFailed: its manifest is right, but this is no state of a Trainer: somebody else made it.
    """
    try:
        state: Any = read_json(checkpoint / STATE)
    except (OSError, ValueError) as error:
        raise RunFailed(f"{checkpoint / STATE} cannot be read: {one_line(error)}") from error
    if not isinstance(state, dict):
        raise RunFailed(f"{checkpoint / STATE} holds no state of a Trainer")
    state = cast("dict[str, Any]", state)
    faults = [f"{name} is missing" for name in _NEEDED if name not in state] + _faults_of(state)
    if faults:
        raise RunFailed(f"{checkpoint / STATE} is no state of a Trainer: {one_line('; '.join(faults))}")
    return state


def _faults_of(state: dict[str, Any]) -> list[str]:
    from transformers import TrainerState

    hints = {field.name: _HINTS.get(field.name, Any) for field in fields(TrainerState)}
    wrong = option_faults(STATE, "TrainerState", state, hints)
    if wrong:
        return wrong
    wrong = [f"{name} is {state[name]}" for name in ("global_step", "best_global_step") if (state.get(name) or 0) < 0]
    logged = all(fits(int, entry.get("step")) for entry in state.get("log_history", ()) if fits(dict[str, Any], entry))
    return wrong if logged else [*wrong, "log_history has an entry without step"]


def _state_fault(checkpoint: Path) -> str | None:
    """Return the fault of the Trainer's state in a checkpoint whose files are undamaged, or None."""
    try:
        if (checkpoint / STATE).exists():
            read_state(checkpoint)
    except RunFailed as error:
        return str(error).removeprefix(f"{checkpoint}/")
    return None


def run_folder_fault(run_folder: Path) -> str | None:
    """Check that the run folder can be made and written to, and leave nothing behind; return the fault or None.

    Args:
        run_folder: may be missing, with its parents.
    """
    reason = check_writable(run_folder)
    if reason is None:
        return None
    return f"training.output_dir: the run folder {str(run_folder)[:200]!r} cannot be written: {reason}"
