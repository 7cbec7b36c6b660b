"""Runs as tasks of a Ray cluster of two raylets on this machine: the local engine's results, also when one is lost."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from comparison_stand_in import STAND_IN
from filelock import FileLock

from wordorder.comparison import RayCluster, compare
from wordorder.comparison.engines.local import Job
from wordorder.comparison.engines.ray import RayEngine
from wordorder.comparison.runs import Run
from wordorder.errors import BadInput

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]  # not while another cluster is waited for

SIX = {name: {"model.encoding": name} for name in ("none", "learned", "sinusoidal", "rope", "alibi", "tupe-r")}
LONG = ("training.max_steps=60", "training.save_every=10", "training.evaluate_every=10", "training.device=cpu")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let Ray's workers import the stand-ins, as a package that is installed on every machine."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


@pytest.fixture
def cluster(importable, log, tmp_path_factory):  # Ray's workers have the environment of its raylets
    """Two raylets with one core each, alone on this machine; the first one has the head and the driver."""
    from ray.cluster_utils import Cluster

    with FileLock(tmp_path_factory.getbasetemp().parent / "ray.lock"):  # shared by pytest's workers
        two_machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        two_machines.second = two_machines.add_node(num_cpus=1)
        yield two_machines
        ray.shutdown()
        two_machines.shutdown()


def plain(path):
    """The results, without what says when, where and how fast."""
    return _without(json.loads(Path(path).read_text()))


def _without(value):
    if isinstance(value, dict):
        return {name: _without(item) for name, item in value.items() if name not in TIMED}
    return [_without(item) for item in value] if isinstance(value, list) else value


TIMED = ("looks", "environment", "train_seconds", "tokens_per_second", "peak_memory_bytes", "output_dir", "workers")


def wait_for(happened, seconds=300, driver=None):
    """Wait until ``happened()`` is true; a driver that ends before, or waits for ever, says where."""
    end = time.monotonic() + seconds
    while not happened():
        late = time.monotonic() >= end
        if late and driver is not None:
            driver.send_signal(signal.SIGABRT)  # faulthandler writes where its threads are
            driver.wait()
        assert driver is None or driver.poll() is None, driver.communicate()[1]
        assert not late, "nothing happened"
        time.sleep(0.05)


def has_checkpoints(folder, count=1):
    """Whether there are so many checkpoints."""
    return len(list(folder.glob("*/seed-*/checkpoint-*/manifest.json"))) >= count


def in_the_middle(folder, count, steps):
    """Whether so many runs have a checkpoint of the first half of their steps, and are not finished."""
    begun = {}
    for path in folder.glob("*/seed-*/checkpoint-*/manifest.json"):
        run, step = path.parents[1], int(path.parent.name.removeprefix("checkpoint-"))
        begun[run] = max(step, begun.get(run, 0))
    return sum(step <= steps / 2 and not (run / "metrics.json").exists() for run, step in begun.items()) >= count


def lose_second(cluster):
    """Kill the second machine's processes at once; removed by Ray alone, a worker would live on for a second or two."""
    (raylet,) = cluster.second.all_processes["raylet"]
    raylet = psutil.Process(raylet.process.pid)
    for process in (raylet, *raylet.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    cluster.remove_node(cluster.second, allow_graceful=False)


def test_a_lost_machine_changes_no_result(make_recipe, cluster, tmp_path):
    # a run must not end before its machine is gone
    longer = ("training.max_steps=480", "training.save_every=20", "training.evaluate_every=20", "training.device=cpu")
    recipe = make_recipe(
        *longer, arms={name: SIX[name] for name in ("none", "rope", "tupe-r")}, seeds=[0, 1], workers=2
    )
    expected = compare(recipe, output_dir=tmp_path / "local", progress=False)

    def lose():
        wait_for(lambda: in_the_middle(tmp_path / "ray", 2, steps=480))
        lose_second(cluster)

    thread = threading.Thread(target=lose)
    thread.start()
    found = compare(recipe, output_dir=tmp_path / "ray", progress=False, ray=RayCluster(address=cluster.address))
    thread.join()
    assert plain(found) == plain(expected)
    starts = [json.loads(path.read_text()) for path in (tmp_path / "ray").glob("*/seed-*/environment.json")]
    assert sum(bool(start.get("earlier_starts")) for start in starts) >= 1  # a run was begun again


DRIVER = """
import sys
from pathlib import Path
from wordorder.comparison import RayCluster, compare
from wordorder.training import read_recipe
recipe = read_recipe(Path(sys.argv[1]), sys.argv[4:])
compare(recipe, output_dir=Path(sys.argv[2]), progress=False, ray=RayCluster(address=sys.argv[3]))
"""


@pytest.mark.parametrize("which", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_comparison_goes_on_after_its_driver_ended(make_recipe, cluster, tmp_path, which):
    arms = {name: SIX[name] for name in ("none", "rope")}
    recipe = make_recipe(*LONG, arms=arms, seeds=[0, 1], workers=2)
    place = tmp_path / "ray"
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-c",
        DRIVER,
        str(tmp_path / "small.toml"),
        str(place),
        cluster.address,
        *LONG,
    ]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: has_checkpoints(place), driver=driver)
        driver.send_signal(which)
        said = driver.communicate(timeout=60)[1]
    finally:
        driver.kill()
        driver.communicate()
    if which != signal.SIGKILL:
        assert f"stopped by {which.name}; run the same command again to go on" in said
    stopped = {path.parent.parent for path in place.glob("*/seed-*/checkpoint-*/manifest.json")}
    assert stopped
    found = compare(recipe, output_dir=place, progress=False, ray=RayCluster(address=cluster.address))
    expected = compare(recipe, output_dir=tmp_path / "local", progress=False)
    assert plain(found) == plain(expected)


def test_trials_of_learning_rates_are_tasks_too(make_recipe, cluster, tmp_path):
    recipe = make_recipe(seeds=[0, 1], workers=2, tune=[1e-3, 2e-3], tune_encoding=[1, 4], tune_extend=1)
    expected = compare(recipe, output_dir=tmp_path / "local", progress=False, pipeline=STAND_IN)
    cluster = RayCluster(address=cluster.address)
    found = compare(recipe, output_dir=tmp_path / "ray", progress=False, pipeline=STAND_IN, ray=cluster)
    assert plain(found) == plain(expected)


@pytest.fixture
def killed(monkeypatch):
    monkeypatch.setenv("STAND_IN_KILL", "rope")


def test_a_run_whose_process_is_killed_each_time_is_named(make_recipe, killed, cluster, tmp_path):
    recipe = make_recipe(seeds=[0], workers=2)
    from wordorder.errors import RunFailed

    cluster = RayCluster(address=cluster.address)
    with pytest.raises(RunFailed, match=r"rope, seed 0: its process was killed .*, 4 times"):
        compare(recipe, output_dir=tmp_path / "ray", progress=False, pipeline=STAND_IN, ray=cluster)
    rows = json.loads((tmp_path / "ray" / "results.json").read_text())["rows"]
    assert [row["arm"] for row in rows] == ["none", "tupe-r"]


def test_a_run_whose_machine_was_told_to_end_is_begun_again(make_recipe, cluster, tmp_path):
    recipe = make_recipe(*LONG, arms={name: SIX[name] for name in ("none", "rope")}, seeds=[0], workers=2)
    told = []

    def tell():
        wait_for(lambda: has_checkpoints(tmp_path / "ray"))
        for process in psutil.process_iter(["cmdline"]):
            if process.info["cmdline"] and process.info["cmdline"][0].startswith("ray::_train"):
                process.send_signal(signal.SIGTERM)  # as `ray stop` and a scheduler that takes a machine away
                told.append(process.pid)

    thread = threading.Thread(target=tell)
    thread.start()
    found = compare(recipe, output_dir=tmp_path / "ray", progress=False, ray=RayCluster(address=cluster.address))
    thread.join()
    assert told
    assert plain(found) == plain(compare(recipe, output_dir=tmp_path / "local", progress=False))


def test_a_lost_machine_loses_nothing_that_is_in_a_store(make_recipe, cluster, tmp_path):
    recipe = make_recipe(*LONG, arms={name: SIX[name] for name in ("none", "rope")}, seeds=[0, 1], workers=2)
    bucket = tmp_path / "bucket"

    def lose():
        wait_for(lambda: has_checkpoints(bucket, 2))
        lose_second(cluster)

    thread = threading.Thread(target=lose)
    thread.start()
    compare(recipe, output_dir=bucket.as_uri(), progress=False, ray=RayCluster(address=cluster.address))
    thread.join()
    expected = compare(recipe, output_dir=tmp_path / "local", progress=False)
    assert plain(bucket / "results.json") == plain(expected)


class Broken(Job):
    """Raises what no training raises."""

    def __call__(self, run):
        raise LookupError(f"no such thing for {run.arm}")


def test_errors_of_a_task_and_folders_that_are_not_shared_are_named(make_recipe, cluster, tmp_path):
    run = Run(arm="rope", seed=0, recipe=make_recipe(seeds=[0]), folder=tmp_path / "rope")
    where = RayCluster(address=cluster.address)
    reasons = []
    for remove in (False, True):
        engine = RayEngine(Broken(pipeline=STAND_IN, statistics={}), where, folder=tmp_path, on_gpus=False)
        if remove:
            engine.token.unlink()  # what a machine sees that has another disk under this name
        engine.submit(run)
        began = []
        ((_, outcome),) = engine.as_completed(began.append)
        engine.cancel()
        assert outcome.status == "failed"
        reasons.append(outcome.reason)
        assert not list(tmp_path.glob(".ray-*"))
    assert reasons[0] == "LookupError: no such thing for rope"
    assert reasons[1].startswith(f"--output-dir: {tmp_path} is another folder on ")


def test_an_own_session_of_ray_is_used_and_stays(make_recipe, cluster, log, tmp_path):
    ray.init(address=cluster.address, log_to_driver=False)
    compare(make_recipe(seeds=[0]), output_dir=tmp_path / "ray", progress=False, pipeline=STAND_IN, ray=RayCluster())
    assert ray.is_initialized()


def test_a_cluster_that_cannot_take_a_run_is_refused(make_recipe, cluster, tmp_path):
    recipe = make_recipe(seeds=[0])
    for options, words in (({"cpus_per_run": 9}, "takes 9 CPU, and the largest"), ({"gpus_per_run": 1}, "1 GPU")):
        with pytest.raises(BadInput, match=words):
            compare(recipe, output_dir=tmp_path, pipeline=STAND_IN, ray=RayCluster(address=cluster.address, **options))
    with pytest.raises(BadInput, match=r"no Ray cluster at 127\.0\.0\.1:1"):
        compare(recipe, output_dir=tmp_path, pipeline=STAND_IN, ray=RayCluster(address="127.0.0.1:1"))
