"""The files of a run folder, its lock and the learning curve among them, and the result that a finished run holds."""

import errno
import json
import os
import socket
import stat
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict

from wordorder.errors import BadInput, RunFailed
from wordorder.files import as_model, make_folder, one_line, parse_json, read_bytes, read_json, write_text
from wordorder.streams import printable
from wordorder.tasks import metric_names

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None

RECIPE, METRICS, ENVIRONMENT, MODEL, LOGS = "recipe.toml", "metrics.json", "environment.json", "model", "logs"
PRETRAINED = "pretrained.json"
"""File with the origin of the weights, and which are new; only in a run that started from a saved model."""
DATA = "data.json"
"""File with the statistics of the prepared data; a resumed run compares its fingerprint."""
IDENTITY = "arm.json"
"""File that a comparison writes into a run's folder before training: everything that the run's numbers depend on."""
CURVE = "curve.jsonl"
READING = "reading.json"
"""File with the lines that could not be read, copies and leaks, with their number by file; absent where there are
none."""


class _Kept(BaseModel):
    """A file of a run folder. What is not named here is kept as it is."""

    model_config = ConfigDict(strict=True, extra="allow")


class Metrics(_Kept):
    """metrics.json: the scores of a finished run, and what it cost."""

    validation: dict[str, Any]
    test: dict[str, Any] | None = None
    optimistic: bool = False
    train_seconds: float = 0.0
    tokens: int = 0
    parameters: int = 0
    steps: int = 0
    batches: dict[str, str] | None = None


class Data(_Kept):
    """data.json: the statistics of the prepared data."""

    fingerprint: str


class Environment(_Kept):
    """environment.json: the versions and the machine of the newest start, and those of the starts before it."""

    processes: int = 1
    packages: dict[str, str] = {}
    earlier_starts: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The scores of a finished run, and the place of its model."""

    metrics: dict[str, Any]
    """Scores of the task on `validation` and, where there is one, `test`: see `TokenTally`, `ClassTally`,
    `NumberTally`.

    Beside them: optimistic (whether the part that chose the checkpoint is also the one that is reported),
    train_seconds, tokens (padding left out), tokens_per_second, peak_memory_bytes (see `Meter`), parameters, steps,
    seed, best_step (whose weights `model/` holds), batches (digests of what was trained on, see `FedBatches`); for
    translation bleu_signature (sacrebleu's) and generation (num_beams, max_length).
    """
    model_dir: Path
    """Folder of the model and the tokenizer, for `from_pretrained` and `pipeline`."""
    curve: list[dict[str, Any]]
    """Rows of step with loss, learning_rate, grad_norm, train_seconds, tokens; validation_loss ... where evaluated."""


def read_result(folder: Path) -> RunResult:
    """Read the result of a finished run from its folder.

    Raises:
        RunFailed: metrics.json or curve.jsonl cannot be read.
    """
    return RunResult(metrics=read_metrics(folder), model_dir=folder / MODEL, curve=read_curve(folder))


def read_metrics(folder: Path) -> dict[str, Any]:
    return read_checked(folder / METRICS, Metrics)


def read_checked(path: Path, kind: type[BaseModel]) -> dict[str, Any]:
    """Read a JSON file that a run makes anew where it is missing; RunFailed where it cannot be read."""
    try:
        found: Any = read_json(path)
        as_model(found, kind)
    except (OSError, ValueError) as error:
        raise RunFailed(f"{path}: cannot be read: {one_line(error)}; remove it, and --resume makes it anew") from None
    return found


def curve_rows(log_history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    by_step: dict[int, dict[str, Any]] = {}
    for entry in log_history:
        found = curve_row(entry)
        if found:
            by_step.setdefault(entry["step"], {"step": entry["step"]}).update(found)
    return [by_step[step] for step in sorted(by_step)]


def curve_row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of one log entry that belong to the curve, without its step.

    Loss is the mean since the entry before, in nats; grad_norm is that of the last step, before clipping.
    """
    names = {name: name for name in ("loss", "learning_rate", "grad_norm", "train_seconds", "tokens")}
    names |= {f"eval_{name}": f"validation_{name}" for name in (*metric_names(), "perplexity")}
    return {new: entry[old] for old, new in names.items() if old in entry}


def rewrite_curve(run_folder: Path, log_history: Iterable[Mapping[str, Any]]) -> None:
    write_text(run_folder / CURVE, "".join(json.dumps(line) + "\n" for line in curve_rows(log_history)))


def append_curve(run_folder: Path, line: Mapping[str, Any]) -> None:
    with (run_folder / CURVE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read_curve(run_folder: Path) -> list[dict[str, Any]]:
    """Read the rows of the curve; a last line that a crash cut short is left out. RunFailed: it cannot be read."""
    path = run_folder / CURVE
    found: list[dict[str, Any]] = []
    try:
        for line in read_bytes(path).decode("utf-8").splitlines() if path.exists() else ():
            try:
                entry: Any = parse_json(line)
            except json.JSONDecodeError:
                break
            if not isinstance(entry, dict) or type(cast("dict[str, Any]", entry).get("step")) is not int:
                raise ValueError(f"line {len(found) + 1} is no row with a step")
            found.append(cast("dict[str, Any]", entry))
    except (OSError, ValueError) as error:
        raise RunFailed(f"{path}: cannot be read: {one_line(error)}; remove it, and there is no curve") from None
    return found


LOCK = ".lock"
_HOLDER = b"process "
"""The beginning of every lock file, so that a file of something else is not taken for one."""
_held: dict[tuple[int, int, int], object] = {}  # by process: a fork copies what its parent holds


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold a folder for this process; one that was made for it and stays empty is removed at the end.

    The lock is POSIX's record lock, which belongs to the process alone: the system frees it at once when the process is
    killed, also where forked workers of it live on. It would let the process in again, and closing the file frees it.

    Raises:
        BadInput: another process holds the folder, or this one already does.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    path, status, holder = folder / LOCK, folder.stat(), object()
    key = os.getpid(), status.st_dev, status.st_ino
    if _held.setdefault(key, holder) is not holder:  # one step, for threads
        raise _busy(folder, "this process")
    try:
        handle = _lock(path)
        try:
            yield
        finally:
            with suppress(OSError):  # while it is held; the folder may have been moved, and another be in its place
                if os.path.samestat(os.fstat(handle), path.stat()):
                    path.unlink()
            os.close(handle)
            for made in missing:
                with suppress(OSError):  # it is not empty
                    made.rmdir()
    finally:
        del _held[key]


def _busy(folder: Path, holder: str) -> BadInput:
    return BadInput(
        f"training.output_dir: {str(folder)!r} is being written by {holder}; wait for its end, stop it, or name "
        "another folder by --output-dir FOLDER"
    )


def _lock(path: Path) -> int:
    while True:
        handle = _open_lock(path)
        try:
            if fcntl is not None:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                holder = os.read(handle, 300).decode(errors="replace").strip() or "another process"
                os.close(handle)
                raise _busy(path.parent, holder) from None
            unlocked = f"{path.parent}: its file system has no locks ({error.strerror}); start nothing else in it"
            print(printable(unlocked), file=sys.stderr)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                break
        os.close(handle)  # who held it has removed it since
    beginning = os.read(handle, len(_HOLDER))
    if beginning not in (b"", _HOLDER):
        os.close(handle)
        raise _foreign(path, "a file of something else")
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    os.write(handle, _HOLDER + f"{os.getpid()} on {socket.gethostname()} since {since}\n".encode())
    return handle


def _open_lock(path: Path) -> int:
    no_links = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
    # a pipe or a device is not opened at all: that alone may do something
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise _foreign(path, "a link" if path.is_symlink() else "no regular file")
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | no_links, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _foreign(path, "a link") from None


def _foreign(path: Path, kind: str) -> BadInput:
    return BadInput(
        f"training.output_dir: {str(path)!r} is {kind}, not the lock of a run; move it away, or name another folder by "
        "--output-dir FOLDER"
    )
