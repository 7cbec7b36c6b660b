"""Check the experiment trackers that `training.report_to` names, and set the folders that they write into."""

# transformers' integrations are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, cast

from wordorder.section import unknown_choice

TENSORBOARD = "tensorboard"
"""The tracker that this package writes for itself, see `wordorder.training.loop.log`."""

PLACES: dict[str, dict[str, str]] = {
    "wandb": {
        "WANDB_DIR": "",
        "WANDB_CACHE_DIR": "wandb/cache",
        "WANDB_CONFIG_DIR": "wandb/config",
        "WANDB_DATA_DIR": "wandb/data",
        "WANDB_ARTIFACT_DIR": "wandb/artifacts",
    },
    "trackio": {"TRACKIO_DIR": "trackio"},
}
"""Tracker -> the environment variables with its folders -> the place below <run folder>/logs. Without them wandb writes
into the working directory and the home, trackio into the home."""

_DISTRIBUTIONS = {"azure_ml": "azureml-mlflow", "comet_ml": "comet-ml", "flyte": "flytekit"}


def tracker_names(report_to: Any) -> list[str]:
    """Return the trackers that a value of report_to names, each once; "all" means every one that is installed."""
    named = [report_to] if isinstance(report_to, str) else list(cast("Sequence[str]", report_to or ()))
    if "all" in named:
        named += _installed()
    return [name for name in dict.fromkeys(named) if name not in ("all", "none")]


def tracker_faults(report_to: Any) -> list[str]:
    """Return one line for each tracker that is not known or not installed."""
    named = tracker_names(report_to)
    if not set(named) - {TENSORBOARD}:  # it comes with the extra train
        return []
    known = sorted(cast("dict[str, Any]", _integrations().INTEGRATION_TO_CALLBACK))
    faults = [
        unknown_choice("training.report_to", name, [*known, "all", "none"]) for name in named if name not in known
    ]
    installed = _installed()
    missing = [name for name in named if name in known and name not in installed]
    for name in missing:
        package = _DISTRIBUTIONS.get(name, name)
        faults.append(f"training.report_to: {name} is not installed; run: pip install {package}, or leave it out")
    return faults


def _installed() -> list[str]:
    return list(cast("list[str]", _integrations().get_available_reporting_integrations()))


def _integrations() -> Any:
    with redirect_stdout(sys.stderr):  # with WANDB_MODE offline its import prints a line
        from transformers.integrations import integration_utils
    return integration_utils


@contextmanager
def trackers_in(logs: Path, report_to: Any) -> Generator[None]:
    """Let wandb and trackio write into a run's folder within the block, and redirect stdout to stderr.

    A place that the user has chosen by the tracker's own variable stays. A wandb run that was begun within is ended,
    or the next run of the process would go on with it; one that the caller began goes on. trackio reads its place once
    in a process: later runs of the same process (arms of a comparison) write where the first one does.
    """
    named = [name for name in tracker_names(report_to) if name != TENSORBOARD]
    if not named:
        yield
        return
    places = {variable: place for name in named for variable, place in PLACES.get(name, {}).items()}
    ours = {variable: str(logs / place) for variable, place in places.items() if variable not in os.environ}
    for place in ours.values():
        Path(place).mkdir(parents=True, exist_ok=True)
    before = _wandb_run()
    os.environ.update(ours)
    try:
        with redirect_stdout(sys.stderr):  # stdout is for --json
            yield
            if before is None and _wandb_run() is not None:
                library: Any = sys.modules["wandb"]
                library.finish()
                library.teardown()  # it would keep its folder for the next run of the process
    finally:
        for variable in ours:
            os.environ.pop(variable, None)


def _wandb_run() -> Any:
    """Return the wandb run that this process has open."""
    return getattr(sys.modules.get("wandb"), "run", None)
