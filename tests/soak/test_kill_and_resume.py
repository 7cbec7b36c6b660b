"""The short version of `make soak`: five kills of each model, and a crash at every call that writes a checkpoint."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wordorder.files import sync_folder, write_text

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it forks and reads /proc")


def script(name, *arguments):
    command = [sys.executable, "-W", "error", str(HERE / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=560)


@pytest.mark.slow
@pytest.mark.timeout(600)  # some twenty seconds of work, but in a gate that shares its cores
def test_five_kills_of_each_model_resume_bit_for_bit(tmp_path):
    path = tmp_path / "found.json"
    done = script("kill_and_resume.py", "--kills", 5, "--json", path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(path.read_text())
    assert [result["model"] for result in found] == ["masked-lm", "memory"]
    for result in found:
        assert result["kills"] == 5
        assert result["identical"] == result["runs"] >= 2
        assert result["compared"] > 20  # files


@pytest.mark.slow
def test_no_crash_while_a_checkpoint_is_written_leaves_half_of_one():
    done = script("every_point.py")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert min(found["points"].values()) >= 3  # calls at which it died
    assert found["crashes"] > 300


def test_a_run_that_crashes_at_any_moment_ends_as_one_that_does_not():
    done = script("every_moment.py", "--crashes", 2000, "--runs", "memory", "many checkpoints")
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(run["crashes"] for run in found) == 2000
    for run in found:
        assert run["wrong"] == []
        assert run["moments"] > 100
        assert run["states"] > run["resumed"] > 15


@pytest.fixture
def soak(monkeypatch):
    """The modules of this folder, which are scripts beside each other and no package."""
    monkeypatch.syspath_prepend(str(HERE))
    import crash_points
    import same_run

    yield crash_points, same_run
    for name in ("crash_points", "same_run", "every_moment", "small_runs"):
        sys.modules.pop(name, None)


def states_left(soak, folder, work):
    """What crashes leave of some work in an empty folder, path -> content: at all moments, and at the last."""
    import every_moment

    folder.mkdir()
    with every_moment.Recording(folder) as recording:
        work(folder)
        recording.look()
    draw = random.Random(0)

    def after(moment):
        left = every_moment.crashed(moment, draw).items()
        return {path: recording.contents[number][:size] for path, (number, size) in left if number >= 0}

    states = [after(moment) for moment in recording.moments for _ in range(60)]
    return states, [after(recording.moments[-1]) for _ in range(60)]


def test_a_crash_tears_what_was_not_flushed(soak, tmp_path):
    def careless(folder):
        (folder / "a.part").write_bytes(b"a" * 9000)
        os.replace(folder / "a.part", folder / "a")
        (folder / "b").write_bytes(b"b")

    states, _ = states_left(soak, tmp_path / "run", careless)
    assert {len(state["a"]) for state in states if "a" in state} == {0, 4096, 8192, 9000}
    assert any("a.part" in state for state in states)
    assert {} in states
    assert any(state == {"b": b"b", "a": b"a" * 9000} for state in states)


def test_a_crash_takes_nothing_that_was_flushed(soak, tmp_path):
    def careful(folder):
        write_text(folder / "a", "old" * 2000)
        write_text(folder / "a", "new" * 2000)

    states, last = states_left(soak, tmp_path / "run", careful)
    assert {state.get("a") for state in states} == {None, b"old" * 2000, b"new" * 2000}
    assert all(state == {"a": b"new" * 2000} for state in last)


def test_a_crash_undoes_names_of_folders_with_all_that_is_in_them(soak, tmp_path):
    def work(folder):
        (folder / "x").mkdir()
        write_text(folder / "x" / "a", "old")
        sync_folder(folder)
        os.rename(folder / "x", folder / "y")
        shutil.rmtree(folder / "y")

    states, _ = states_left(soak, tmp_path / "run", work)
    seen = {tuple(sorted(state)) for state in states if not any(".a." in path for path in state)}
    assert seen == {(), ("x/a",), ("y/a",)}


def test_a_comparison_sees_one_changed_bit_and_no_clock(soak, tmp_path):
    _, same_run = soak

    def run_folder(name, *, weights=b"w", seconds=1.0, tokens=5):
        folder = tmp_path / name
        for inner in ("model", "checkpoint-4"):
            (folder / inner).mkdir(parents=True)
        (folder / "model" / "model.safetensors").write_bytes(weights)
        state = {"dict": [["meter", {"dict": [["seconds", seconds], ["tokens", tokens]]}]]}
        (folder / "checkpoint-4" / "training.json").write_text(json.dumps(state))
        (folder / "checkpoint-4" / "manifest.json").write_text(str(seconds))
        (folder / "metrics.json").write_text(json.dumps({"train_seconds": seconds, "steps": 4}))
        (folder / "data.json").write_text("{}")
        (folder / "curve.jsonl").write_text(json.dumps({"step": 4, "train_seconds": seconds}) + "\n")
        return same_run.fingerprint(folder)

    expected = run_folder("whole")
    assert same_run.differences(run_folder("clock", seconds=2.0), expected) == []
    assert same_run.differences(run_folder("weights", weights=b"v"), expected) == ["model/model.safetensors"]
    assert same_run.differences(run_folder("tokens", tokens=6), expected) == ["checkpoint-4/training.json"]
    assert same_run.differences({}, {"a": "1"}) == ["a is missing"]
    assert same_run.differences({"a": "1"}, {}) == ["a is new"]
    two, other = ({f"checkpoint-{step}/w": "1" for step in steps} for steps in ((12, 16), (9, 16)))
    assert same_run.differences(two, other) == ["checkpoint-12/w is new", "checkpoint-9/w is missing"]
    assert same_run.differences(two, other, stopped=True) == []
    assert same_run.differences(two, {"checkpoint-20/w": "1"}, stopped=True) == ["the newest checkpoint is another"]


def test_a_power_cut_takes_what_was_not_flushed_and_nothing_else(soak, tmp_path):
    crash_points, _ = soak
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "before").write_bytes(b"b" * 9000)
    left = set()
    for seed in range(20):
        cut = crash_points.PowerCut(folder, random.Random(seed), crash_points.CrashPoints(folder, at=None).original)
        (folder / "flushed").write_bytes(b"f" * 9000)
        cut.done("fsync", folder / "flushed", None)
        (folder / "loose").write_bytes(b"l" * 9000)
        undo = cut.before("rename", folder / "loose", (folder / "loose", folder / "renamed"))
        (folder / "loose").rename(folder / "renamed")
        cut.done("rename", folder / "loose", undo)
        cut.cut()
        assert (folder / "before").stat().st_size == (folder / "flushed").stat().st_size == 9000
        (found,) = [path for path in folder.iterdir() if path.name in ("loose", "renamed")]
        left.add((found.name, found.stat().st_size))
        found.unlink()
    assert {name for name, _ in left} == {"loose", "renamed"}
    assert {0, 4096, 9000} <= {size for _, size in left} <= {0, 4096, 8192, 9000}
