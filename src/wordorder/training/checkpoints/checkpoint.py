"""Write, find, check and remove the checkpoints of a run folder, each of which is whole or absent."""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, RootModel
from safetensors import SafetensorError

from wordorder.errors import RunFailed
from wordorder.files import (
    REPLACED,
    check_writable,
    leftovers,
    of_the_system,
    one_line,
    read_model,
    remove_folder,
    replace_folder,
    restore_replaced,
    sync_files,
    write_json,
)
from wordorder.training.checkpoints.state import STATE, TrainState

MANIFEST = "manifest.json"
"""File of a checkpoint with the size and the SHA-256 of each of the others; written last."""
_NAME = re.compile(r"checkpoint-(\d+)")
_SAVING = ".saving-"


class _Sealed(BaseModel):
    model_config = ConfigDict(strict=True)

    bytes: int
    sha256: str


class _Manifest(RootModel[dict[str, _Sealed]]):
    """Name -> size and digest."""


def is_checkpoint(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def checkpoints(run_folder: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints of a run folder as (step, folder), oldest first, without checking that they are whole."""
    if not run_folder.is_dir():
        return []
    found = [(match, path) for path in run_folder.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()]
    return sorted((int(match[1]), path) for match, path in found)


@dataclass(frozen=True, slots=True)
class Found:
    """The checkpoint that a run can be resumed from, and the damaged ones after it."""

    newest: Path | None
    """The newest checkpoint whose files are all there and undamaged; None where there is none."""
    passed_over: tuple[tuple[Path, str], ...]
    """Damaged checkpoints after `newest`, or all where there is no whole one, oldest first, each with its faults."""


def find_newest(run_folder: Path) -> Found:
    passed_over: list[tuple[Path, str]] = []
    for _, path in reversed(checkpoints(run_folder)):
        fault = damage(path) or _state_fault(path)
        if fault is None:
            return Found(path, tuple(reversed(passed_over)))
        passed_over.append((path, fault))
    return Found(None, tuple(reversed(passed_over)))


def last_good(run_folder: Path) -> str:
    kept = find_newest(run_folder).newest
    return f"the last good checkpoint is {kept}" if kept else "there is no earlier checkpoint"


def write_checkpoint(run_folder: Path, step: int, fill: Callable[[Path], None]) -> Path:
    """Make checkpoint-<step>: let `fill` write its files into a folder beside its place, seal that, rename it.

    Raises:
        RunFailed: a file could not be written, for a full disk for instance; older checkpoints are untouched.
    """

    final = run_folder / f"checkpoint-{step}"
    try:
        _write_folder(final, fill, seal, staging=f"{_SAVING}{step}")
    except Exception as error:
        if isinstance(error, SafetensorError) or of_the_system(error):
            raise RunFailed(f"checkpoint-{step} could not be saved: {error}; {last_good(run_folder)}") from error
        raise
    return final


def write_model(final: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder that is whole or absent: fill it beside its place, flush it to the disk, rename it."""
    _write_folder(final, fill, sync_files, staging=f"{_SAVING}{final.name}")


def _write_folder(final: Path, fill: Callable[[Path], None], flush: Callable[[Path], None], *, staging: str) -> None:
    new = final.with_name(staging)
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir()
        fill(new)
        flush(new)
        replace_folder(new, final)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def seal(folder: Path) -> None:
    """Flush every file of a folder to the disk and write its manifest."""
    entries: dict[str, dict[str, int | str]] = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            entries[path.name] = {"bytes": path.stat().st_size, "sha256": digest}
            os.fsync(file.fileno())
    write_json(folder / MANIFEST, entries)


def damage(folder: Path) -> str | None:
    """Return what in a folder is not as its manifest says, file by file, or None; sizes are looked at first."""
    if folder.is_symlink():
        return f"{folder.name} is a link, which leads out of the run folder"
    try:
        written = read_model(folder / MANIFEST, _Manifest).root
        there = {path.name for path in folder.iterdir()} - {MANIFEST}
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except OSError as error:
        return f"{MANIFEST} cannot be read: {error.strerror}"
    except ValueError:
        return f"{MANIFEST} is not what was written"
    if not written:
        return f"{MANIFEST} names no file"
    faults = [f"{name} is missing" for name in sorted(written.keys() - there)]
    faults += [f"{name} is not in {MANIFEST}" for name in sorted(there - written.keys())]
    present = sorted(written.keys() & there)
    faults += filter(None, (_file_fault(folder / name, written[name], read=False) for name in present))
    if not faults:
        faults += filter(None, (_file_fault(folder / name, written[name], read=True) for name in present))
    return ", ".join(faults) or None


def _file_fault(path: Path, written: _Sealed, *, read: bool) -> str | None:
    try:
        if read:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            return None if found == written.sha256 else f"{path.name} is not as it was written: its SHA-256 is another"
        if path.is_symlink() or not path.is_file():  # a link leads out of the folder, a pipe would never end
            return f"{path.name} is no plain file"
        size = path.stat().st_size
        return None if size == written.bytes else f"{path.name} has {size} bytes, {written.bytes} were written"
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"


def rotate(
    run_folder: Path, *, keep: int | None, best: Path | None, always: Collection[Path] = (), step: int | None = None
) -> None:
    """Remove the oldest checkpoints until `keep` are left; always keep the newest and the best.

    Args:
        keep: None keeps all. With 1, the best is kept beside the newest when they differ.
        always: checkpoints that are neither removed nor counted.
        step: of the checkpoint that was just written; None: the last. Later ones, which a resumed run passed over as
            damaged, are neither removed nor counted; those between the two belong into `always`.
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
    restore_replaced(run_folder)
    for path in hidden_leftovers(run_folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def hidden_leftovers(run_folder: Path) -> list[Path]:
    """Return the half-written and half-removed files and folders of killed runs, and replaced folders."""
    return [*leftovers(run_folder), *run_folder.glob(f"{_SAVING}*"), *run_folder.glob(f"{REPLACED}*")]


def read_state(checkpoint: Path) -> TrainState:
    """Read the state of the training from a valid checkpoint; RunFailed where somebody else made it."""
    path = checkpoint / STATE
    try:
        return read_model(path, TrainState)
    except (OSError, ValueError) as error:
        raise RunFailed(f"{path} is no state of a training: {one_line(error)}") from error


def _state_fault(checkpoint: Path) -> str | None:
    try:
        if (checkpoint / STATE).exists():
            step = read_state(checkpoint).step
            if checkpoint.name != f"checkpoint-{step}":
                return f"{STATE} is that of step {step}"
    except RunFailed as error:
        return str(error).removeprefix(f"{checkpoint}/")
    return None


def run_folder_fault(run_folder: Path) -> str | None:
    """Check that the run folder can be made and written to, and leave nothing behind; return the fault or None."""
    reason = check_writable(run_folder)
    if reason is None:
        return None
    return f"training.output_dir: the run folder {str(run_folder)[:200]!r} cannot be written: {reason}"
