"""The log of a run: its entries, the curve, and experiment trackers."""

# accelerate has types in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.launch import is_main
from wordorder.section import unknown_choice
from wordorder.training.runs.folder import append_curve, curve_row

if TYPE_CHECKING:
    from wordorder.training.loop.training import Training

TENSORBOARD = "tensorboard"

FOLDERS: dict[str, dict[str, str]] = {
    "wandb": {
        "WANDB_DIR": "",
        "WANDB_CACHE_DIR": "wandb/cache",
        "WANDB_CONFIG_DIR": "wandb/config",
        "WANDB_DATA_DIR": "wandb/data",
        "WANDB_ARTIFACT_DIR": "wandb/artifacts",
    },
    "trackio": {"TRACKIO_DIR": "trackio"},
}
"""Tracker -> the environment variables with its folders -> the folder below <run folder>/logs. Without them wandb
writes into the working directory and the home, trackio into the home."""

_RUN_NAMES = {
    "wandb": "name",
    "trackio": "name",
    "mlflow": "run_name",
    "clearml": "task_name",
    "swanlab": "experiment_name",
}
"""Tracker -> its option for the name of a run."""


class Log:
    """The entries of a run's log, which trackers and the curve get too."""

    def __init__(self, training: "Training", *, trackers: Sequence[Any]) -> None:
        self._training, self._trackers = training, trackers

    def add(self, values: dict[str, float]) -> None:
        """Add an entry to the log, with the epoch, the step, and the seconds and tokens of training so far."""
        training = self._training
        if "loss" in values:
            (tokens,) = training.parts.processes.total(training.meter.tokens)
            values |= {"train_seconds": round(training.meter.seconds, 3), "tokens": tokens}
        values["epoch"] = training.state.epoch
        training.state.log.append({**values, "step": training.state.step})
        scalars = {_tag(name): value for name, value in values.items() if name != "epoch"}
        for tracker in self._trackers:
            tracker.log(scalars, step=training.state.step)

    def loss(self, grad_norm: float | None, learning_rate: float) -> None:
        """Add the mean loss since it was logged last; called by all processes together."""
        training, state = self._training, self._training.state
        total = training.parts.accelerator.gather(training.loss_sum).mean().item()
        training.loss_sum -= training.loss_sum
        values = {"loss": total / (state.step - training.logged_step)}
        if grad_norm is not None:
            values["grad_norm"] = grad_norm
        training.logged_step = state.step
        self.add({**values, "learning_rate": learning_rate})

    def write_curve(self, *, since: int) -> None:
        """Append the entries since a place of the log to the curve, as one row."""
        training, state = self._training, self._training.state
        row: dict[str, Any] = {}
        for entry in state.log[since:]:
            row |= curve_row(entry)
        if row and training.parts.processes.is_main:
            append_curve(training.folder, {"step": state.step, **row})


def _tag(name: str) -> str:
    """Return the name of a value in trackers: "eval_loss" -> "validation/loss", "loss" -> "train/loss"."""
    return f"validation/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"


def tracker_faults(names: Sequence[str]) -> list[str]:
    """Return a fault for each tracker that accelerate does not know, or that is not installed."""
    if not set(names) - {TENSORBOARD}:  # it comes with the extra train
        return []
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    installed = set(map(str, get_available_trackers()))
    faults: list[str] = []
    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS:
            faults.append(unknown_choice("training.trackers", name, sorted(LOGGER_TYPE_TO_CLASS)))
        elif name not in installed:
            package = name.replace("_", "-")
            faults.append(f"training.trackers: {name} is not installed; run: pip install {package}, or leave it out")
    return faults


@contextmanager
def running_trackers(names: Sequence[str], folder: Path, *, first_step: int) -> Generator[list[Any]]:
    """Start the trackers of a run in its first process, and finish them at the end of the block.

    They write into <run folder>/logs, and what they print goes to stderr. A folder that the user has chosen by the
    tracker's own variable stays. trackio reads its folder once in a process: later runs of the same process (arms of a
    comparison) write where the first one does. TensorBoard's viewer drops what a killed run wrote from `first_step` on.
    """
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    logs, trackers = folder / "logs", list[Any]()
    with ExitStack() as stack:
        if set(names) - {TENSORBOARD}:
            stack.enter_context(redirect_stdout(sys.stderr))  # stdout is for --json
        for name in names if is_main() else ():
            for variable, subfolder in FOLDERS.get(name, {}).items():
                if variable not in os.environ:
                    (logs / subfolder).mkdir(parents=True, exist_ok=True)
                    os.environ[variable] = str(logs / subfolder)
                    stack.callback(os.environ.pop, variable, None)
            kind: Any = LOGGER_TYPE_TO_CLASS[name]
            if name == TENSORBOARD:
                tracker = kind("", str(logs), purge_step=first_step)
            else:
                project = os.environ.get(f"{name.upper()}_PROJECT", "wordorder")
                paths = [str(logs)] if kind.requires_logging_directory else []
                options = {_RUN_NAMES[name]: "/".join(folder.parts[-2:])} if name in _RUN_NAMES else {}
                if name == "wandb":  # which reads the variable once in a process
                    options["dir"] = os.environ["WANDB_DIR"]
                tracker = kind(project, *paths, **options)
            tracker.start()
            # trackio would finish once more at exit, on stdout, if only the tracker were finished
            stack.callback(sys.modules["trackio"].finish if name == "trackio" else tracker.finish)
            trackers.append(tracker)
        yield trackers
