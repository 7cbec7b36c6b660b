import os
import signal
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from comparison_stand_in import STAND_IN

from wordorder.comparison import compare
from wordorder.comparison.engines.local import (
    VISIBLE,
    InThisProcess,
    Job,
    LocalEngine,
    Outcome,
    Worker,
    devices_of,
    execute,
    placements,
)
from wordorder.comparison.results_file import Significance
from wordorder.comparison.runs import Run
from wordorder.comparison.statistics.significance import Conclusions
from wordorder.errors import Stopped
from wordorder.training.loop.interruption import Signalled, handling


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("wordorder.comparison.report.figures.write_figures", lambda results, folder: [])
    monkeypatch.setattr("wordorder.comparison.engines.local.release_memory", lambda: None)
    untested = Conclusions(comparisons=(), significance=Significance())
    monkeypatch.setattr("wordorder.comparison.results.compare_arms", lambda results, kept: untested)


JOB = Job(pipeline=STAND_IN, statistics={None: {}})


def sees(device):
    return {VISIBLE: device}


@pytest.mark.parametrize(
    ("devices", "workers", "runs", "places"),
    [
        ([], 1, 9, []),  # in this process
        (["0"], 1, 9, []),
        ([], 3, 9, [{}, {}, {}]),
        ([], 3, 2, [{}, {}]),
        (["0"], 2, 9, [sees("0"), sees("0")]),
        (["0", "1"], 1, 9, [sees("0"), sees("1")]),
        (["3", "GPU-5a"], 2, 9, [sees("3"), sees("GPU-5a")]),
        (["0", "1"], 3, 9, [sees("0"), sees("1"), sees("0")]),
        (["0", "1", "2", "3"], 1, 2, [sees("0"), sees("1")]),
        (["0", "1"], 1, 0, [sees("0")]),
    ],
)
def test_each_device_has_a_worker_and_none_is_without_work(devices, workers, runs, places):
    assert placements(devices, workers=workers, runs=runs) == places


@pytest.mark.parametrize(
    ("visible", "count", "devices"),
    [
        (None, 0, ()),
        (None, 2, ("0", "1")),
        ("2,3", 2, ("2", "3")),
        ("GPU-a, GPU-b", 2, ("GPU-a", "GPU-b")),
        ("", 0, ()),
    ],
)
def test_devices_have_the_names_that_the_process_sees_them_by(make_recipe, monkeypatch, visible, count, devices):
    monkeypatch.delenv(VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    recipe = make_recipe()
    assert devices_of(recipe) == devices
    on_cpu = replace(recipe, training=recipe.training.having(device="cpu"))
    assert devices_of(on_cpu) == ()


def test_one_worker_trains_in_this_process():
    here = LocalEngine(JOB, places=placements(["0"], workers=1, runs=4))
    assert [type(executor) for executor in here.idle] == [InThisProcess]


class SeesDevice(Job):
    """Says which device it sees, or is killed in a probe, after its training."""

    def __call__(self, run):
        if run.arm == "killed":
            run.folder.mkdir(parents=True)
            (run.folder / "metrics.json").write_text("{}")
            os.kill(os.getpid(), signal.SIGKILL)
        return Outcome(status="finished", reason=os.environ.get(VISIBLE, ""))


@pytest.mark.slow
def test_a_worker_sees_its_device_alone_and_so_does_the_one_in_its_place(make_recipe, tmp_path, monkeypatch):
    monkeypatch.delenv(VISIBLE, raising=False)
    recipe = make_recipe()
    engine = LocalEngine(JOB, places=[sees("7")])
    runs = [Run(arm=arm, seed=0, recipe=recipe, folder=tmp_path / arm) for arm in ("before", "killed", "after")]
    engine.job = SeesDevice(pipeline=STAND_IN, statistics={})
    try:
        for run in runs:
            engine.submit(run)
        found = {run.arm: outcome for run, outcome in engine.as_completed(lambda run: None)}
    finally:
        engine.cancel()
    assert (found["before"].reason, found["after"].reason) == ("7", "7")
    assert found["killed"].status == "finished"
    assert VISIBLE not in os.environ


class Long(Job):
    """Sleeps until it is stopped."""

    def __call__(self, run):
        run.folder.mkdir(parents=True)
        (run.folder / "begun").touch()
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            (run.folder / "stopped").touch()
        return Outcome(status="stopped")


@pytest.mark.slow
def test_a_signal_while_a_run_is_handed_over_stops_it_too(make_recipe, tmp_path, monkeypatch):
    engine = LocalEngine(Long(pipeline=STAND_IN, statistics={}), places=[{}])
    run, hand_over = Run(arm="rope", seed=0, recipe=make_recipe(), folder=tmp_path / "rope"), engine.workers[0].submit

    def interrupted(*task):
        hand_over(*task)
        while not (run.folder / "begun").exists():
            time.sleep(0.05)
        raise Stopped("stopped by SIGTERM")

    monkeypatch.setattr(engine.workers[0], "submit", interrupted)
    engine.submit(run)
    with pytest.raises(Stopped):
        list(engine.as_completed(lambda run: None))
    engine.cancel()
    assert (run.folder / "stopped").exists()


def test_a_finished_run_is_not_trained_again_for_its_probes(make_recipe, log, tmp_path):
    asked = []
    pipeline = replace(STAND_IN, probe=lambda recipe, model, folder, options: asked.append((model, dict(options))))
    run = Run(
        arm="rope",
        seed=0,
        recipe=make_recipe("model.encoding=rope"),
        folder=tmp_path / "rope" / "seed-0",
        probes={"word-order": {"windows": [2]}},
    )
    for _ in range(2):
        assert execute(pipeline, run, {None: {"fingerprint": "same"}}).status == "finished"
    assert len([line for line in log() if line.startswith("start")]) == 1
    assert asked == [(run.folder / "model", {"word-order": {"windows": [2]}})] * 2


def test_a_comparison_trains_on_the_devices_that_there_are(make_recipe, log, tmp_path, monkeypatch):
    asked = []

    def here(job, *, places):
        asked.append(places)
        return LocalEngine(job, places=[])

    monkeypatch.setattr(import_module("wordorder.comparison.compare"), "LocalEngine", here)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    compare(make_recipe(seeds=[0, 1]), progress=False, pipeline=STAND_IN)
    assert asked == [[sees("0"), sees("1")]]


def test_a_signal_to_a_worker_that_has_no_run_yet_is_no_traceback(capfd):
    worker = Worker()
    worker.send(signal.SIGTERM)
    with pytest.raises(BrokenProcessPool):
        worker.submit(os.getpid).result(timeout=60)
    worker.shutdown()
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_while_a_process_starts_arrives_when_it_has_started(monkeypatch, fails):
    order = []

    def start(self, task):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR1)  # as a cluster sends one after the other
        order.append("started")
        if fails:
            raise OSError("no processes left")
        return Future()

    def stop(number, frame):
        order.append(signal.Signals(number))
        raise Signalled("stopped")

    monkeypatch.setattr(Worker, "submit", start)
    with pytest.raises(Stopped), handling([signal.SIGTERM, signal.SIGUSR1], stop):
        Worker()
    assert order == ["started", signal.SIGTERM]


class TermAsItIsSent:
    """Reaches its process by SIGTERM while the pool pickles it, as the result of a task."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return TermAsItIsSent, ()


def test_a_signal_while_a_result_is_sent_back_ends_the_worker():
    worker = Worker()
    with pytest.raises(BrokenProcessPool):
        worker.submit(TermAsItIsSent).result(timeout=60)
    worker.shutdown()
