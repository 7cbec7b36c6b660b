import io
import json

import pytest
from comparison_stand_in import STAND_IN
from rich.console import Console

from wordorder.comparison import compare
from wordorder.comparison.progress import print_plan
from wordorder.comparison.schedule import (
    MARGIN,
    Work,
    choose,
    evaluations,
    makespan,
    parse_budget,
    seconds_of_run,
    spelled,
)
from wordorder.comparison.timing import StepTime
from wordorder.errors import BadInput, RunFailed


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("wordorder.comparison.figures.write_figures", lambda results, folder: [])
    monkeypatch.setattr("wordorder.comparison.workers.release_memory", lambda: None)
    monkeypatch.setattr("wordorder.comparison.results.conclusions", lambda results: {})
    # what measuring took is not a number that a test could know
    monkeypatch.setattr("wordorder.comparison.schedule.seconds_spent", lambda folder: 10.0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1h1m1s", 3661), ("90m", 5400)]
)
def test_limits_are_read(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "0m", "m", "1.5h", "30m1h", "-3m", "30 m", "30M", "1d"])
def test_what_is_no_limit_is_refused_with_the_remedy(text):
    with pytest.raises(BadInput, match=r"--budget: .* write it as 90s, 30m, 2h or 1h30m"):
        parse_budget(text)


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1s"), (90, "90s"), (91, "2m"), (3600, "1h"), (5341, "1h30m")])
def test_limits_are_written_rounded_up_and_read_back(seconds, text):
    assert spelled(seconds) == text
    assert parse_budget(text) >= seconds


@pytest.mark.parametrize(
    ("seconds", "workers", "end"),
    [([], 2, 0), ([3, 1, 1], 1, 5), ([3, 1, 1], 2, 3), ([1, 1, 3], 2, 4), ([2, 2, 2], 8, 2)],
)
def test_each_free_worker_takes_the_next_training(seconds, workers, end):
    assert makespan(seconds, workers) == end


WORK = Work(seconds={"none": 10.0, "rope": 20.0, "tupe": 30.0}, seeds=(3, 4, 5), spent=5.0)
ONE_SEED = 5 + MARGIN * 60


@pytest.mark.parametrize(
    ("budget", "arms", "seeds"),
    [
        (5 + MARGIN * 180, ("none", "rope", "tupe"), (3, 4, 5)),
        (5 + MARGIN * 180 - 1, ("none", "rope", "tupe"), (3, 4)),
        (ONE_SEED, ("none", "rope", "tupe"), (3,)),
        (ONE_SEED - 1, ("none", "rope"), (3,)),
        (5 + MARGIN * 30 - 1, ("none",), (3,)),
    ],
)
def test_seeds_are_left_out_before_arms_and_arms_from_the_end(budget, arms, seeds):
    plan = choose(WORK, budget)
    assert (plan.arms, plan.seeds) == (arms, seeds)
    assert plan.estimate <= budget
    assert plan.whole == (len(arms) == len(seeds) == 3)
    assert bool(plan.left_out()) != plan.whole


def test_the_baseline_stays_although_it_is_last():
    work = Work(seconds={"none": 10.0, "rope": 20.0, "tupe": 30.0}, seeds=(0,), baseline="tupe")
    assert choose(work, MARGIN * 45).arms == ("none", "tupe")
    assert choose(work, MARGIN * 35).arms == ("tupe",)


def test_what_is_left_out_is_said_with_its_time():
    two, one = choose(WORK, 5 + MARGIN * 125).left_out(), choose(WORK, 5 + MARGIN * 30).left_out()
    assert two[0] == "Not trained: seed 5 of every arm (3 runs, about 66s)."
    assert one[0] == "Not trained: seeds 4 and 5 of the arms that stay (4 runs, about 66s)."
    assert one[1] == "Not trained: arm tupe with all seeds (3 runs, about 2m)."
    assert two[-1] == one[-1] == "All of it takes about 4m; the same command with that budget goes on."
    assert choose(WORK, parse_budget("4m")).whole


def test_a_baseline_that_does_not_fit_is_refused_with_what_would():
    with pytest.raises(
        BadInput, match=r"one seed of the baseline 'none' takes about 16s, more than 15s; .* 4m for all"
    ):
        choose(WORK, 15)


def test_tried_rates_belong_to_every_arm():
    work = Work(seconds={"none": 10.0, "rope": 20.0}, seeds=(0, 1), trials=3)
    assert work.estimate(["none", "rope"], [0, 1]) == pytest.approx(MARGIN * (3 * 30 + 2 * 30))
    assert choose(work, MARGIN * 120).seeds == (0,)
    with pytest.raises(BadInput, match="with the 3 learning rates that are tried for it takes about 44s"):
        choose(work, 43)


def test_what_is_finished_stays_though_the_budget_is_smaller():
    done = {(arm, seed) for arm in WORK.seconds for seed in (3, 4)}
    assert choose(WORK, 1, done).seeds == (3, 4)
    assert choose(WORK, 1e6, done).seeds == (3, 4, 5)
    assert choose(WORK, 1, done - {("tupe", 3)}).arms == ("none", "rope")


def test_preparing_and_workers_count():
    once = {"opening": 7.0, "preparation": 4.0, "preparations_per_seed": 2}
    work = Work(seconds={"none": 10.0, "rope": 20.0}, seeds=(0, 1), workers=2, **once)
    assert work.estimate(["none", "rope"], [0, 1]) == pytest.approx(MARGIN * (7 + 4 * 4 + 40))


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 3),  # every second step, and after the last one
        ({"eval_steps": 0.5}, 2),
        ({"eval_steps": 4, "save_steps": 4}, 1),
        ({"eval_strategy": "no"}, 0),
    ],
)
def test_evaluations_are_those_that_training_makes(make_recipe, options, count):
    recipe = make_recipe(
        *(f"training.{name}={json.dumps(value)}" for name, value in ({"eval_steps": 2} | options).items())
    )
    assert evaluations(recipe, 6) == count


def test_seconds_of_a_run_add_up(make_recipe):
    time = StepTime(
        seconds_per_step=1.0, seconds_to_start=4.0, seconds_per_evaluation=3.0, seconds_to_finish=6.0, wall=1.5
    )
    assert seconds_of_run(make_recipe("training.eval_steps=3"), time) == 4 + 6 * 1.5 + 2 * 3 + 6


def run(recipe, **options):
    path = compare(recipe, progress=False, pipeline=STAND_IN, **options)
    return json.loads(path.read_text())


def starts(log):
    return [line.removeprefix("start ") for line in log() if line.startswith("start")]


def laps(log):
    return [line for line in log() if line.startswith("lap")]


SEED = MARGIN * 3 * (4 + 6 + 3 + 6)  # three arms: start, steps, an evaluation, the end; five seconds once


def at_once(make_recipe, **options):
    return make_recipe("training.eval_steps=6", **options)


def test_a_comparison_within_a_budget_trains_what_is_planned_and_says_what_is_left_out(make_recipe, log, tmp_path):
    recipe = at_once(make_recipe)
    results = run(recipe, budget=20 + 2 * SEED)
    assert [(row["arm"], row["seed"]) for row in results["rows"]] == [
        (arm, seed) for seed in (0, 1) for arm in ("none", "rope", "tupe-r")
    ]
    assert results["complete"]
    assert results["planned"] | {"seeds": [0, 1], "arms": 3, "runs": 6} == results["planned"]
    assert results["recipe"]["compare"]["seeds"] == [0, 1]
    plan = results["plan"]
    assert plan == json.loads((tmp_path / "out" / "plan.json").read_text())
    assert (plan["seeds"], plan["arms"]) == ([0, 1], ["none", "rope", "tupe-r"])
    assert plan["budget_seconds"] == pytest.approx(20 + 2 * SEED)
    assert plan["left_out"][0].startswith("Not trained: seed 2 of every arm (3 runs, ")
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_the_same_budget_keeps_its_plan_and_a_larger_one_goes_on(make_recipe, log):
    recipe = at_once(make_recipe)
    first = run(recipe, budget=20 + SEED)
    timed = laps(log)
    assert len(starts(log)) == 3
    assert run(recipe, budget=20 + SEED)["plan"] == first["plan"]
    assert len(starts(log)) == 3
    second = run(recipe, budget=20 + 2 * SEED)
    assert len(starts(log)) == 6
    assert second["rows"][:3] == first["rows"]
    whole = run(recipe, budget=20 + 3 * SEED)
    assert whole["plan"]["left_out"] == []
    assert laps(log) == timed
    assert len(whole["rows"]) == len(starts(log)) == 9


def test_without_a_budget_what_was_left_out_is_trained(make_recipe, log, tmp_path):
    recipe = at_once(make_recipe)
    run(recipe, budget=20 + SEED)
    results = run(recipe)
    assert len(results["rows"]) == 9
    assert "plan" not in results
    assert not (tmp_path / "out" / "plan.json").exists()


def test_arms_are_left_out_of_results_and_recipe(make_recipe, log):
    results = run(at_once(make_recipe, baseline="tupe-r"), budget=10 + SEED - 1)
    assert [arm["name"] for arm in results["arms"]] == ["none", "tupe-r"]
    assert [arm["name"] for arm in results["recipe"]["compare"]["arms"]] == ["none", "tupe-r"]
    assert [row["seed"] for row in results["rows"]] == [0, 0]
    assert any("arm rope with all seeds" in sentence for sentence in results["plan"]["left_out"])


def test_a_budget_that_is_too_small_trains_nothing(make_recipe, log):
    with pytest.raises(BadInput, match="one seed of the baseline 'none' takes about"):
        run(at_once(make_recipe), budget=20)
    assert not starts(log)


def test_planning_only_trains_nothing(make_recipe, log, tmp_path):
    assert run(at_once(make_recipe), budget=20 + SEED, plan_only=True)["seeds"] == [0]
    assert not starts(log)
    assert not (tmp_path / "out" / "results.json").exists()


def test_an_arm_that_cannot_be_timed_stops_the_comparison_before_anything_is_trained(
    make_recipe, log, tmp_path, monkeypatch
):
    monkeypatch.setenv("STAND_IN_FAIL", "rope")
    with pytest.raises(RunFailed, match="arm 'rope' cannot be timed: RunFailed: out of memory; nothing was trained"):
        run(at_once(make_recipe), budget=1e6)
    assert not starts(log)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_plan_is_printed_before_training(make_recipe, log, capfd):
    compare(at_once(make_recipe), pipeline=STAND_IN, budget=20 + SEED)
    lines = capfd.readouterr().err.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("[1/3]"))
    said = "\n".join(lines[:first])
    for words in (
        "measuring how long",
        "Seconds per run",
        "19.0",
        "Seed 0: about",
        "Not trained: seeds 1 and 2 of every",
    ):
        assert words in said


def test_a_plan_with_rates_and_left_out_arms_is_a_table():
    console = Console(file=io.StringIO(), width=90)
    work = Work(seconds={"[bold]": 10.0, "rope": 20.0}, seeds=(0,), trials=3, workers=2)
    print_plan(choose(work, MARGIN * 45).as_dict(), console)
    text = console.file.getvalue()
    assert "[bold]" in text
    assert "Rates tried" in text
    assert "left out" in text
    assert "2 at the same time" in text


def test_a_comparison_killed_within_its_budget_gives_the_rows_of_one_that_was_not(
    make_recipe, log, start_comparison, tmp_path, monkeypatch
):
    whole = run(at_once(make_recipe), budget=20 + 2 * SEED, output_dir=tmp_path / "whole")
    monkeypatch.setenv("STAND_IN_SECONDS", "60")
    monkeypatch.setenv("STAND_IN_QUICK", "none")
    before = len(starts(log))
    recipe, limit = at_once(make_recipe), f"budget={20 + 2 * SEED}"
    process = start_comparison(recipe, until=before + 2, overrides=["training.eval_steps=6"], options=limit)
    process.kill()
    process.wait()
    monkeypatch.setenv("STAND_IN_SECONDS", "0")
    timed, before = len(laps(log)), len(starts(log))
    resumed = run(at_once(make_recipe), budget=20 + 2 * SEED)
    assert resumed["rows"] == whole["rows"]
    assert resumed["plan"]["seeds"] == whole["plan"]["seeds"] == [0, 1]
    assert len(laps(log)) == timed
    assert starts(log)[before] == "rope seed-0 0.002 resumed"
    assert len(starts(log)) - before == 5  # the one that had finished is not trained again
