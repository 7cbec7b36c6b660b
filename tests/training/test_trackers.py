"""wandb and trackio write into the run folder and nowhere else; what is not installed is one line."""

import importlib.metadata
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from wordorder.errors import BadInput
from wordorder.training import read_recipe
from wordorder.training.recipe.trackers import tracker_faults, tracker_names, trackers_in

ROOT = Path(__file__).resolve().parents[2]
RUN_TWICE = """
import json, sys
from wordorder.training import read_recipe, run
for name in ("one", "two"):
    changes = {"output_dir": f"{sys.argv[2]}/{name}", "report_to": sys.argv[3], "max_steps": 2, "eval_steps": 1}
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
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name in ("mlflow", "comet_ml", "trackio") else real(name, *rest),
    )
    for name, package in (("trackio", "trackio"), ("mlflow", "mlflow"), ("comet_ml", "comet-ml")):
        with pytest.raises(BadInput) as caught:
            read_recipe(recipe_file, [f"training.report_to={name}"])
        assert caught.value.faults == (
            f"training.report_to: {name} is not installed; run: pip install {package}, or leave it out",
        )
    with pytest.raises(
        BadInput, match=r"training\.report_to: unknown value 'tensorbord'; did you mean 'tensorboard'\?"
    ):
        read_recipe(recipe_file, ["training.report_to=tensorbord"])


def test_names_and_places(tmp_path, monkeypatch):
    assert tracker_names(None) == tracker_names("none") == tracker_names([]) == []
    assert tracker_names(["wandb", "tensorboard", "wandb"]) == ["wandb", "tensorboard"]
    assert "tensorboard" in tracker_names("all")
    assert tracker_faults("tensorboard") == []
    monkeypatch.setenv("WANDB_DIR", "/chosen")
    monkeypatch.delenv("WANDB_CACHE_DIR", raising=False)
    with trackers_in(tmp_path, "wandb"):
        assert os.environ["WANDB_DIR"] == "/chosen"  # what the user says stays
        assert os.environ["WANDB_CACHE_DIR"] == str(tmp_path / "wandb/cache")
    assert "WANDB_CACHE_DIR" not in os.environ
    with trackers_in(tmp_path / "none", "tensorboard"):
        assert not (tmp_path / "none").exists()
