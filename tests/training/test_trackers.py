"""wandb and trackio write into the run folder and nowhere else; what is not installed is one line."""

import importlib.metadata
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import accelerate.tracking
import numpy as np
import pytest
from accelerate.state import PartialState
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from wordorder.errors import BadInput
from wordorder.training import read_recipe, run
from wordorder.training.loop.log import running_trackers, tracker_faults

ROOT = Path(__file__).resolve().parents[2]
RUN_TWICE = """
import json, sys
from wordorder.training import read_recipe, run
for name in ("one", "two"):
    changes = {"output_dir": f"{sys.argv[2]}/{name}", "trackers": sys.argv[3], "max_steps": 2, "evaluate_every": 1}
    run(read_recipe(sys.argv[1], [f"training.{name}={value}" for name, value in changes.items()]), progress=False)
print(json.dumps({"done": True}))
"""


def installed(name, oldest):
    """Whether a tracker is there whose version is 0.<oldest> at least: transformers 5 calls what older ones lack."""
    try:
        return [int(part) for part in importlib.metadata.version(name).split(".")[:2]] >= [0, oldest]
    except importlib.metadata.PackageNotFoundError:
        return False


@pytest.fixture(scope="module")
def two_runs(shared_recipe_file, tmp_path_factory):
    """Two runs in one process, with a home of their own and every tracker that is installed; (runs, home, trackers)."""
    found = [name for name, oldest in (("wandb", 0), ("trackio", 20)) if installed(name, oldest)]
    if not found:
        pytest.skip("neither wandb nor trackio is installed; they come with the extra trackers")
    home, runs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("runs")
    foreign = ("WANDB_", "TRACKIO_", "XDG_", "HF_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    variables |= {"HOME": str(home), "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", RUN_TWICE, str(shared_recipe_file), str(runs), json.dumps(found)],
        env=variables, cwd=home, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {"done": True}  # stdout is for machines, whatever trackers print
    return runs, home, found


@pytest.mark.slow
def test_nothing_is_written_outside_the_run_folders(two_runs):
    runs, home, _ = two_runs
    assert [path for path in home.rglob("*") if path.is_file()] == []
    assert {path.name for path in runs.iterdir()} == {"one", "two"}


@pytest.mark.slow
def test_wandb_writes_each_run_into_its_own_folder(two_runs):
    runs, _, found = two_runs
    if "wandb" not in found:
        pytest.skip("wandb is not installed; it comes with the extra trackers")
    for name in ("one", "two"):
        (log,) = (runs / name / "logs" / "wandb").glob("offline-run-*/*.wandb")
        assert b"train/loss" in log.read_bytes()


@pytest.mark.slow
def test_trackio_writes_into_the_folder_of_the_first_run_of_a_process(two_runs):
    runs, _, found = two_runs
    if "trackio" not in found:
        pytest.skip("trackio 0.20 or later is not installed; it comes with the extra trackers")
    (base,) = (runs / "one" / "logs" / "trackio").glob("*.db")
    with sqlite3.connect(base) as connection:
        rows = connection.execute("select run_name, metrics from metrics").fetchall()
    assert len({name for name, _ in rows}) == 2
    assert any(b"train/loss" in metrics for _, metrics in rows)


def test_a_tracker_that_is_not_there_is_one_line_that_names_the_package(recipe_file, monkeypatch):
    monkeypatch.setattr(accelerate.tracking, "_available_trackers", ["tensorboard"])
    for name, package in (("trackio", "trackio"), ("mlflow", "mlflow"), ("comet_ml", "comet-ml")):
        with pytest.raises(BadInput) as caught:
            read_recipe(recipe_file, [f"training.trackers=['{name}']"])
        assert caught.value.faults == (
            f"training.trackers: {name} is not installed; run: pip install {package}, or leave it out",
        )
    with pytest.raises(BadInput, match=r"training\.trackers: unknown value 'tensorbord'; did you mean 'tensorboard'\?"):
        read_recipe(recipe_file, ["training.trackers=['tensorbord']"])


def test_names_and_places(tmp_path, monkeypatch):
    assert tracker_faults(["tensorboard"]) == []
    with running_trackers([], tmp_path, first_step=0) as trackers:
        assert trackers == []
    assert list(tmp_path.iterdir()) == []


class Recorder(accelerate.tracking.GeneralTracker):
    """A tracker in place of wandb's, which notes how it is called."""

    name, requires_logging_directory, tracker = "wandb", False, None

    def __init__(self, project, **options):
        super().__init__()
        self.calls = [("made", project, options)]

    def start(self):
        print("a banner")
        self.calls.append(("started", {name: os.environ.get(name) for name in ("WANDB_DIR", "WANDB_CACHE_DIR")}))

    def finish(self):
        self.calls.append(("finished",))


def test_a_tracker_gets_the_name_and_the_folder_of_its_run_and_is_finished_after_a_failure(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(accelerate.tracking.LOGGER_TYPE_TO_CLASS, "wandb", Recorder)
    monkeypatch.setenv("WANDB_DIR", "/chosen")
    monkeypatch.delenv("WANDB_CACHE_DIR", raising=False)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    folder = tmp_path / "tupe-r" / "seed0"
    with (
        pytest.raises(RuntimeError, match="planted"),
        running_trackers(["wandb"], folder, first_step=0) as (tracker,),
    ):
        raise RuntimeError("planted")
    variables = {
        "WANDB_DIR": "/chosen",
        "WANDB_CACHE_DIR": str(folder / "logs/wandb/cache"),
    }  # what the user says stays
    assert tracker.calls == [
        ("made", "wordorder", {"name": "tupe-r/seed0", "dir": "/chosen"}),
        ("started", variables),
        ("finished",),
    ]
    assert "WANDB_CACHE_DIR" not in os.environ
    assert capsys.readouterr() == ("", "a banner\n")  # stdout is for --json


def scalars(folder):
    events = EventAccumulator(str(folder / "logs")).Reload()
    return {(tag, row.step, row.value) for tag in events.Tags()["scalars"] for row in events.Scalars(tag)}


def test_tensorboard_has_every_value_of_the_curve(recipe_file, tmp_path):
    run(read_recipe(recipe_file, ["training.trackers=['tensorboard']", "training.max_steps=4"]), progress=False)
    curve = [json.loads(line) for line in (tmp_path / "run" / "curve.jsonl").read_text().splitlines()]
    assert any("loss" in row for row in curve)
    written = scalars(tmp_path / "run")
    for row in curve:
        for name in ("loss", "learning_rate", "grad_norm"):
            if name in row:
                assert (f"train/{name}", row["step"], np.float32(row[name])) in written
        for name, value in row.get("validation", {}).items():
            assert (f"validation/{name}", row["step"], np.float32(value)) in written
    assert {tag.partition("/")[0] for tag, _, _ in written} == {"train", "validation"}


def test_tensorboard_drops_what_a_killed_run_wrote_after_its_checkpoint(tmp_path):
    PartialState()  # accelerate's trackers ask which process they are in
    for first, values in ((0, {1: 1.0, 2: 2.0, 3: 3.0}), (3, {3: 30.0})):
        with running_trackers(("tensorboard",), tmp_path, first_step=first) as (tracker,):
            for step, value in values.items():
                tracker.log({"train/loss": value}, step=step)
    assert scalars(tmp_path) == {("train/loss", 1, 1.0), ("train/loss", 2, 2.0), ("train/loss", 3, 30.0)}
