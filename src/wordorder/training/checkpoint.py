"""The checkpoints of a run folder: whole or absent, the newest valid one, and which are kept."""

import json
import re
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from wordorder import durable
from wordorder.durable import is_whole, remove_folder, replace_folder, seal
from wordorder.errors import RunFailed

STATE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def checkpoints(run_folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints of a run folder, (step, folder), oldest first; whether they are whole is not looked at.

    Args:
        run_folder: may be missing.
    """
    if not run_folder.is_dir():
        return []
    found = [(match, path) for path in run_folder.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()]
    return sorted((int(match[1]), path) for match, path in found)


def newest_valid(run_folder: Path) -> Path | None:
    """The newest checkpoint whose files are all there and unharmed, or None.

    Args:
        run_folder: may be missing.
    """
    return next((path for _, path in reversed(checkpoints(run_folder)) if is_whole(path)), None)


def write_checkpoint(run_folder: Path, step: int, fill: Callable[[Path], None]) -> Path:
    """Make checkpoint-<step>: filled beside its place, sealed with a manifest, renamed.

    Args:
        run_folder: an existing folder.
        step: steps done.
        fill: writes the checkpoint's files into the folder that it is given.

    Raises:
        RunFailed: a file could not be written, for a full disk for instance; older checkpoints are untouched.
    """
    staging = run_folder / f".saving-{step}"
    final = run_folder / f"checkpoint-{step}"
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        fill(staging)
        seal(staging)
        replace_folder(staging, final)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise RunFailed(f"checkpoint-{step} could not be saved: {error}; {last_good(run_folder)}") from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return final


def last_good(run_folder: Path) -> str:
    """Say which checkpoint a failed run can be resumed from.

    Args:
        run_folder: the run folder.
    """
    kept = newest_valid(run_folder)
    return f"the last good checkpoint is {kept}" if kept else "there is no earlier checkpoint"


def rotate(run_folder: Path, *, keep: int | None, best: Path | None, always: Collection[Path] = ()) -> None:
    """Remove the oldest checkpoints; the newest and the best are always kept.

    Args:
        run_folder: the run folder.
        keep: how many to keep at most; None keeps all. With 1, the best is kept beside the newest when they differ.
        best: the checkpoint of the best validation score, if there is one.
        always: checkpoints that are neither removed nor counted.
    """
    present = [path for _, path in checkpoints(run_folder) if path not in always]
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
    """Remove what a killed run left half-written.

    Args:
        run_folder: an existing folder.
    """
    for path in run_folder.iterdir():
        if path.name.startswith((".saving-", ".deleting-")) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """What the Trainer knew when the checkpoint was written.

    Args:
        checkpoint: a valid checkpoint.
    """
    return json.loads((checkpoint / STATE).read_text(encoding="utf-8"))


def check_writable(run_folder: Path) -> str | None:
    """Try to make the run folder and to write in it, and leave nothing behind: None, or the fault in words.

    Args:
        run_folder: may be missing, with its parents.
    """
    reason = durable.check_writable(run_folder)
    if reason is None:
        return None
    return f"training.output_dir: the run folder {str(run_folder)!r} cannot be written: {reason}"
