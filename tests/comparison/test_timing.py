import json
import os
import signal
from dataclasses import replace

import pytest
from comparison_stand_in import STAND_IN

from wordorder.comparison import lap as laps_of
from wordorder.comparison.arms import resolve_arms
from wordorder.comparison.lap import Enough, Lap, run_lap, step_clock
from wordorder.comparison.pipeline import Pipeline, prepare
from wordorder.comparison.timing import FEWEST_STEPS, MOST_STEPS, ROUNDS, _summaries, measure_steps, seconds_spent
from wordorder.errors import RunFailed


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("wordorder.comparison.workers.release_memory", lambda: None)


def measure(recipe, folder, pipeline=STAND_IN, **options):
    return measure_steps(resolve_arms(recipe), pipeline=pipeline, folder=folder, config=recipe.compare, **options)


def laps(log):
    return [line.removeprefix("lap ") for line in log() if line.startswith("lap")]


def test_arms_take_turns_and_leave_no_folders(make_recipe, log, tmp_path):
    said = []
    times = measure(make_recipe(), tmp_path / "out", say=said.append)
    arms = ("none", "rope", "tupe-r")
    assert laps(log) == [f"{arm} {steps}" for steps in (None, *[FEWEST_STEPS] * ROUNDS) for arm in arms]
    assert list(times) == list(arms)
    for time in times.values():
        assert (time.seconds_per_step, time.seconds_to_start, time.seconds_per_evaluation) == (1, 4, 3)
        assert (time.seconds_to_finish, time.total_steps, time.wall) == (6, 6, 1)
        assert time.seconds_to_open == 5  # the first start took five seconds longer
        assert time.seconds_to_prepare < 5
    assert len(said) == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["timing.json"]
    assert json.loads((tmp_path / "out" / "timing.json").read_text())["machine"]["workers"] == 1


@pytest.mark.parametrize(("step", "count"), [("0.001", MOST_STEPS), ("0.05", 10), ("0.2", FEWEST_STEPS)])
def test_quick_steps_are_timed_in_greater_number_the_same_for_all_arms(
    make_recipe, log, tmp_path, monkeypatch, step, count
):
    monkeypatch.setenv("STAND_IN_STEP", step)
    monkeypatch.setenv("STAND_IN_SLOW", "rope")
    times = measure(make_recipe(), tmp_path)
    assert laps(log)[-3:] == [f"{arm} {count}" for arm in ("none", "rope", "tupe-r")]
    assert times["none"].seconds_per_step == pytest.approx(float(step))
    assert times["rope"].seconds_per_step == pytest.approx(2 * float(step))


def test_times_are_kept_for_what_does_not_change_the_speed(make_recipe, log, tmp_path):
    first = measure(make_recipe(), tmp_path)
    count, spent = len(laps(log)), seconds_spent(tmp_path)
    assert spent > 0
    for change in ("training.max_steps=9", "training.learning_rate=0.1", "training.eval_steps=2", "compare.seeds=[7]"):
        assert measure(make_recipe(change), tmp_path) == first
    assert len(laps(log)) == count
    assert seconds_spent(tmp_path) == spent


@pytest.mark.parametrize("change", ["model.hidden_size=32", "training.per_device_train_batch_size=8", "data.length=8"])
def test_another_recipe_is_measured_anew(make_recipe, log, tmp_path, change):
    measure(make_recipe(), tmp_path)
    count = len(laps(log))
    measure(make_recipe(change), tmp_path)
    assert len(laps(log)) == 2 * count


def test_a_new_arm_is_measured_and_the_others_keep_their_times(make_recipe, log, tmp_path, monkeypatch):
    earlier = measure(make_recipe(), tmp_path)
    before = len(laps(log))
    monkeypatch.setenv("STAND_IN_STEP", "7")
    arms = {name: {"model.encoding": name} for name in ("none", "alibi", "rope", "tupe-r")}
    times = measure(make_recipe(arms=arms), tmp_path)
    assert {line.split()[0] for line in laps(log)[before:]} == {"alibi"}
    assert list(times) == list(arms)
    assert times["alibi"].seconds_per_step == 7
    assert {name: time for name, time in times.items() if name != "alibi"} == earlier


def test_another_machine_is_measured_anew(make_recipe, log, tmp_path):
    measure(make_recipe(), tmp_path)
    count, path = len(laps(log)), tmp_path / "timing.json"
    there = json.loads(path.read_text())
    path.write_text(json.dumps({**there, "machine": {**there["machine"], "device": "cuda: another"}}))
    measure(make_recipe(), tmp_path)
    assert len(laps(log)) == 2 * count
    path.write_text("{")
    measure(make_recipe(), tmp_path)
    assert len(laps(log)) == 3 * count


def test_the_median_of_the_rounds_counts(make_recipe, log, tmp_path):
    found = []

    def uneven(recipe, prepared, folder, seed, steps):
        lap = STAND_IN.lap(recipe, prepared, folder, seed, steps)
        found.append(steps)
        slow = 50 if len(found) == 3 else 1  # one of the rounds was disturbed
        return replace(lap, wall_seconds=lap.wall_seconds * slow * 1.5, clock_seconds=lap.clock_seconds * slow)

    (time,) = measure(
        make_recipe(arms={"a": {"model.encoding": "rope"}}), tmp_path, replace(STAND_IN, lap=uneven)
    ).values()
    assert (time.seconds_per_step, time.wall) == (1, pytest.approx(1.5))


def test_opening_a_worker_is_what_it_was_old_when_it_began(make_recipe, log, tmp_path):
    laps = {
        "a": [
            Lap(start=2, process=1, age=7),
            Lap(start=1, process=2, age=9, steps=1),
            Lap(start=1, process=1, age=11, steps=1),
        ],
        "b": [
            Lap(start=4, process=2, age=6),
            Lap(start=1, process=1, age=9, steps=1),
            Lap(start=1, process=2, age=12, steps=1),
        ],
    }
    assert {time.seconds_to_open for time in _summaries(laps).values()} == {7 + 3}
    here = {name: [replace(lap, process=os.getpid()) for lap in own] for name, own in laps.items()}
    assert {time.seconds_to_open for time in _summaries(here).values()} == {3}


def test_an_arm_that_cannot_be_trained_leaves_nothing(make_recipe, log, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAIL", "rope")
    (tmp_path / "out" / ".timing-of-a-killed-one" / "none").mkdir(parents=True)
    with pytest.raises(RunFailed, match="arm 'rope' cannot be timed: RunFailed: out of memory"):
        measure(make_recipe(), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_clock_is_that_of_one_thread_and_the_wall_elsewhere(make_recipe):
    assert step_clock(make_recipe("training.threads=1", "training.use_cpu=true"))[0] == "process"
    assert step_clock(make_recipe("training.threads=2", "training.use_cpu=true"))[0] == "wall"
    loading = make_recipe("training.threads=1", "training.use_cpu=true", "training.dataloader_num_workers=1")
    assert step_clock(loading)[0] == "wall"


def test_real_laps_time_the_training_itself(make_recipe, tmp_path):
    recipe = make_recipe("training.max_steps=40", "training.threads=1")
    prepared = prepare(recipe, 0)
    lap = run_lap(recipe, prepared, tmp_path / "steps", 0, 5)
    assert (lap.steps, lap.total_steps, lap.clock) == (5, 40, "process")
    assert 0 < lap.clock_seconds < 60
    assert 0 < lap.wall_seconds < 60
    assert lap.start > 0
    assert not (tmp_path / "steps" / "metrics.json").exists()
    around = run_lap(recipe, prepared, tmp_path / "around", 0, None)
    assert around.evaluation > 0
    assert around.finish > 0
    assert json.loads((tmp_path / "around" / "metrics.json").read_text())["steps"] == 2


def test_a_training_shorter_than_a_lap_is_timed_with_the_steps_that_it_has(make_recipe, tmp_path):
    recipe = make_recipe("training.max_steps=2", "training.threads=1")
    lap = run_lap(recipe, prepare(recipe, 0), tmp_path / "steps", 0, 5)
    assert (lap.steps, lap.total_steps) == (1, 2)
    assert lap.wall_seconds > 0


def test_a_signal_during_a_lap_is_not_lost(make_recipe, tmp_path, monkeypatch):
    from wordorder.errors import Stopped

    recipe = make_recipe("training.max_steps=40", "training.threads=1")
    update = laps_of._Watch.update

    def interrupted(self, step, loss, tokens):
        if step == laps_of.WARM_UP + 5:
            os.kill(os.getpid(), signal.SIGTERM)
        update(self, step, loss, tokens)

    monkeypatch.setattr(laps_of._Watch, "update", interrupted)
    with pytest.raises(Stopped):
        run_lap(recipe, prepare(recipe, 0), tmp_path / "steps", 0, 5)


def test_a_watch_counts_each_step_once():
    watch = laps_of._Watch(lambda: 0.0, last=2)
    watch.start(0, 9)
    watch.update(1, 0.0, 0)
    watch.update(1, 0.0, 0)  # as at the end of an epoch
    assert len(watch.wall) == 1
    with pytest.raises(Enough):
        watch.update(2, 0.0, 0)


def test_arms_are_measured_with_the_packages_own_training(make_recipe, tmp_path):
    recipe = make_recipe("training.threads=1", arms={"a": {"model.encoding": "rope"}})
    (time,) = measure(recipe, tmp_path / "out", Pipeline()).values()
    assert 0 < time.seconds_per_step < 10
    assert time.clock == "process"
    assert time.wall > 0.5
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["timing.json"]


def test_a_round_that_something_disturbed_does_not_count():
    from wordorder.comparison.lap import Lap
    from wordorder.comparison.timing import _summary

    laps = [Lap(start=start, steps=10, clock_seconds=10 * step) for start, step in ((4, 9), (70, 1), (5, 1.5))]
    found = _summary(Lap(start=4, evaluation=5, finish=6), laps, wall=2.0)
    assert (found.seconds_per_step, found.seconds_to_start) == (1.5, 5)
    assert (found.seconds_per_evaluation, found.seconds_to_finish) == (2.0, 4.0)
