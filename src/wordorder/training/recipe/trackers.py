"""Check the experiment trackers that `training.report_to` names, and run accelerate's trackers for them."""

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, cast

from wordorder.launch import is_main
from wordorder.section import unknown_choice

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


def tracker_names(report_to: Any) -> list[str]:
    """Return the trackers that a value of report_to names, each once; "all" means every one that is installed."""
    named = [report_to] if isinstance(report_to, str) else list(cast("Sequence[str]", report_to or ()))
    if "all" in named:
        named += _installed()
    return [name for name in dict.fromkeys(named) if name not in ("all", "none")]


def tracker_faults(report_to: Any) -> list[str]:
    """Return one line for each tracker that accelerate does not have or that is not installed."""
    named = tracker_names(report_to)
    if not set(named) - {TENSORBOARD}:  # it comes with the extra train
        return []
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    faults: list[str] = []
    for name in named:
        if name not in LOGGER_TYPE_TO_CLASS:
            faults.append(unknown_choice("training.report_to", name, [*sorted(LOGGER_TYPE_TO_CLASS), "all", "none"]))
        elif name not in _installed():
            package = name.replace("_", "-")
            faults.append(f"training.report_to: {name} is not installed; run: pip install {package}, or leave it out")
    return faults


def _installed() -> list[str]:
    from accelerate.tracking import get_available_trackers

    return [str(name) for name in cast("list[Any]", get_available_trackers())]


@contextmanager
def running_trackers(report_to: Any, folder: Path, *, first_step: int) -> Generator[list[Any]]:
    """Start the trackers of a run in its first process, and finish them at the end of the block.

    They write into <run folder>/logs, and what they print goes to stderr. A folder that the user has chosen by the
    tracker's own variable stays. trackio reads its folder once in a process: later runs of the same process (arms of a
    comparison) write where the first one does. TensorBoard's viewer drops what a killed run wrote from `first_step` on.
    """
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    names, logs = tracker_names(report_to) if is_main() else [], folder / "logs"
    trackers: list[Any] = []
    with ExitStack() as stack:
        if set(names) - {TENSORBOARD}:
            stack.enter_context(redirect_stdout(sys.stderr))  # stdout is for --json
        for name in names:
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
