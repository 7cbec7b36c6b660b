import json
import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from comparison_stand_in import STAND_IN

from wordorder.comparison import compare
from wordorder.comparison.engines.local import Worker
from wordorder.comparison.pipeline import prepare
from wordorder.comparison.report.table import rates_tried
from wordorder.comparison.results_file import parse_results
from wordorder.errors import BadInput, RunFailed, Stopped, UnfairComparison
from wordorder.training.recipe import recipe as recipes


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Leave out what costs time and what test_real_comparison.py covers: figure files and collecting garbage."""
    monkeypatch.setattr("wordorder.comparison.report.figures.write_figures", lambda results, folder: [])
    monkeypatch.setattr("wordorder.comparison.engines.local.release_memory", lambda: None)


def run(recipe, **options):
    path = compare(recipe, progress=False, pipeline=STAND_IN, **options)
    return json.loads(path.read_text())


def starts(log):
    return [line.removeprefix("start ") for line in log() if line.startswith("start")]


def test_every_arm_meets_every_seed_and_the_files_are_written(make_recipe, log, tmp_path):
    results = run(make_recipe())
    assert [(row["arm"], row["seed"]) for row in results["rows"]] == [
        (arm, seed) for seed in (0, 1, 2) for arm in ("none", "rope", "tupe-r")
    ]
    assert len(starts(log)) == 9
    assert log().count("prepare") == 1
    row = results["rows"][2]
    assert (row["model"], row["parameters"], row["flops_per_token"]) == ("tupe-r/seed-0/model", 1050, 5e6)
    assert row["curve"] == [[2, 3.3], [4, 2.55], [6, 2.3]]
    assert results["summary"][2]["loss"] == {
        "mean": pytest.approx(1.81),
        "std": pytest.approx(0.01),
        "n": 3,
        "median": pytest.approx(1.81),
        "low": pytest.approx(1.8),
        "high": pytest.approx(1.82),
    }
    assert results["environment"]["device"] == "cpu: made up"
    assert results["complete"]
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"table.md", "report.html", "none", "rope"}


@pytest.mark.slow
def test_workers_give_the_same_results_as_one_process(make_recipe, log, tmp_path):
    alone = run(make_recipe(), output_dir=tmp_path / "alone")
    many = run(make_recipe(workers=2), output_dir=tmp_path / "many")
    assert many["rows"] == alone["rows"]
    assert many["summary"] == alone["summary"]


def test_finished_runs_are_not_trained_again_and_new_arms_and_seeds_are_added(make_recipe, log):
    run(make_recipe(seeds=[0]))
    before = len(starts(log))
    arms = {name: {"model.encoding": name} for name in ("none", "rope", "tupe-r", "alibi")}
    results = run(make_recipe(seeds=[0, 1], arms=arms))
    assert len(starts(log)) - before == 5
    assert len(results["rows"]) == 8


@pytest.mark.parametrize(
    "options", [{"tune": [0.002, 0.004]}, {"grid": [0.002, 0.004]}, {"folds": [0, 1]}], ids=["tune", "grid", "folds"]
)
def test_seeds_and_arms_that_are_added_give_the_results_of_one_comparison(make_recipe, log, tmp_path, options):
    overrides = ["data.folds=3"] if "folds" in options else []
    arms = {name: {"model.encoding": name} for name in ("none", "rope", "alibi")}
    first = dict(list(arms.items())[:2])
    run(make_recipe(*overrides, **options, arms=first, seeds=[0]))
    run(make_recipe(*overrides, **options, arms=first, seeds=[0, 1]))
    added = run(make_recipe(*overrides, **options, arms=arms, seeds=[0, 1]))
    once = len(starts(log))
    whole = run(make_recipe(*overrides, **options, arms=arms, seeds=[0, 1]), output_dir=tmp_path / "whole")
    assert len(starts(log)) == 2 * once  # nothing was trained twice
    for name in ("rows", "summary", "tuning", "grid", "arms", "comparisons", "planned", "complete"):
        assert added[name] == whole[name]
    folds = len(options.get("folds", [0]))
    assert [look["runs"] for look in added["looks"]] == [
        {"none": folds, "rope": folds},
        {"none": 2 * folds, "rope": 2 * folds},
        {"none": 2 * folds, "rope": 2 * folds, "alibi": 2 * folds},
    ]


def test_metrics_that_somebody_changed_are_told_and_not_written(make_recipe, log, tmp_path):
    before = run(make_recipe(seeds=[0]), output_dir=tmp_path)
    path = tmp_path / "rope" / "seed-0" / "metrics.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "steps": "six"}))
    with pytest.raises(RunFailed, match=r"seed-0/metrics.json: cannot be read: steps must be a valid integer"):
        run(make_recipe(seeds=[0]), output_dir=tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == before


def test_the_same_command_with_fewer_seeds_shows_these_and_keeps_the_others(make_recipe, log):
    run(make_recipe(seeds=[0, 1]))
    assert {row["seed"] for row in run(make_recipe(seeds=[0]))["rows"]} == {0}
    assert {row["seed"] for row in run(make_recipe(seeds=[0, 1]))["rows"]} == {0, 1}
    assert len(starts(log)) == 6


def test_runs_that_other_machines_added_are_told_where_speeds_are_read(make_recipe, log, tmp_path):
    assert "notes" not in run(make_recipe(seeds=[0]))
    there = tmp_path / "out" / "rope" / "seed-0" / "environment.json"
    there.write_text(json.dumps({"device": "cuda: H100", "threads": 4}))
    results = run(make_recipe(seeds=[0, 1]))
    (note,) = results["notes"]
    assert note == (
        "Tokens per second and peak memory were measured in different conditions and compare only within one: "
        "5 runs on cpu: made up with 1 thread; 1 run on cuda: H100 with 4 threads."
    )
    assert note in (tmp_path / "out" / "table.md").read_text()
    there.write_text("{")
    with pytest.raises(RunFailed, match=r"rope/seed-0/environment.json: cannot be read: .*; remove it"):
        run(make_recipe(seeds=[0, 1]))


def test_a_folder_of_another_recipe_is_refused_and_names_the_difference(make_recipe, log):
    run(make_recipe(seeds=[0]))
    before = len(starts(log))
    with pytest.raises(BadInput) as caught:
        run(make_recipe("training.max_steps=7", seeds=[0]))
    (fault,) = caught.value.faults
    assert "seed-0 (and 2 more run folders) was made by a different recipe" in fault
    assert "training.max_steps was 6, now 7" in fault
    assert len(starts(log)) == before


def test_names_without_effect_on_results_may_differ(make_recipe, log):
    run(make_recipe(seeds=[0]))
    run(make_recipe("training.log_every=3", seeds=[0]))
    assert len(starts(log)) == 3


def test_a_corpus_that_changed_under_its_name_is_refused(make_recipe, log, monkeypatch):
    run(make_recipe(seeds=[0]))
    monkeypatch.setenv("STAND_IN_FINGERPRINT", "other")
    with pytest.raises(BadInput, match="the data changed under its name"):
        run(make_recipe(seeds=[0]))


@pytest.mark.parametrize("name", ["report.html", "table.md", "results.json", "figures/curves.png"])
def test_files_of_something_else_are_never_replaced(make_recipe, log, tmp_path, name):
    mine = tmp_path / "out" / name
    mine.parent.mkdir(parents=True)
    mine.write_text('{"mine": 1}')
    with pytest.raises(BadInput, match=r"holds .* of something else than a comparison"):
        compare(make_recipe(), progress=False, pipeline=STAND_IN)
    assert mine.read_text() == '{"mine": 1}'
    assert not log()


@pytest.mark.slow
def test_a_second_comparison_in_the_folder_of_one_that_works_is_refused(
    make_recipe, log, monkeypatch, start_comparison
):
    monkeypatch.setenv("STAND_IN_SECONDS", "60")
    recipe = make_recipe(seeds=[0])
    first = start_comparison(recipe, until=1)
    with pytest.raises(BadInput, match=rf"is being written by process {first.pid}"):
        compare(recipe, progress=False, pipeline=STAND_IN)


def test_a_comparison_with_a_damaged_results_file_goes_on(make_recipe, log, tmp_path):
    compare(make_recipe(seeds=[0]), progress=False, pipeline=STAND_IN)
    (tmp_path / "out" / "results.json").write_text("{")
    compare(make_recipe(seeds=[0]), progress=False, pipeline=STAND_IN)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["rows"]


def test_a_folder_of_something_else_is_refused(make_recipe, log, tmp_path):
    (tmp_path / "out" / "rope" / "seed-1").mkdir(parents=True)
    (tmp_path / "out" / "rope" / "seed-1" / "thesis.txt").touch()
    with pytest.raises(BadInput, match="something else"):
        run(make_recipe())
    assert not starts(log)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_one_failing_arm_is_recorded_and_the_others_go_on(make_recipe, log, tmp_path, monkeypatch, workers):
    monkeypatch.setenv("STAND_IN_FAIL", "rope")
    with pytest.raises(RunFailed, match=r"1 of 3 runs failed(.|\n)*rope, seed 0: RunFailed: the loss is NaN at step 3"):
        run(make_recipe(seeds=[0], workers=workers))
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["arm"] for row in results["rows"]] == ["none", "tupe-r"]
    assert results["failed"][0] | {"arm": "rope", "status": "failed", "stage": "seeds"} == results["failed"][0]
    assert not results["complete"]
    assert "the loss is NaN at step 3" in (tmp_path / "out" / "report.html").read_text()
    monkeypatch.delenv("STAND_IN_FAIL")
    assert run(make_recipe(seeds=[0], workers=workers))["complete"]


def test_a_link_in_the_place_of_the_figures_is_refused_before_anything_is_trained(make_recipe, log, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    run(make_recipe(seeds=[0]))
    (tmp_path / "out" / "figures").symlink_to("../elsewhere")
    before = log()
    with pytest.raises(BadInput, match="figures' is a link to"):
        run(make_recipe(seeds=[0, 1]))
    assert log() == before


def test_a_disk_that_is_full_at_the_very_end_is_one_line(make_recipe, log, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("wordorder.comparison.report.figures.write_figures", full)
    with pytest.raises(RunFailed, match=r"cannot write figures and model cards into .*No space left"):
        run(make_recipe(seeds=[0]))


def test_a_run_on_other_batches_is_refused_before_a_table_shows_it(make_recipe, log, tmp_path):
    def train(recipe, folder, seed, **options):
        STAND_IN.train(recipe, folder, seed, **options)
        metrics = json.loads((folder / "metrics.json").read_text())
        fed = "other" if (folder.parent.name, seed) == ("rope", 1) else f"batches of seed {seed}"
        (folder / "metrics.json").write_text(json.dumps({**metrics, "batches": {"6": fed}}))

    with pytest.raises(UnfairComparison, match="rope, seed 1: was trained on other batches than none"):
        compare(make_recipe(), progress=False, pipeline=replace(STAND_IN, train=train))
    assert [line for line in log() if line.startswith("start")][-1].startswith("start rope seed-1")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [(row["arm"], row["seed"]) for row in results["rows"]][-1] == ("none", 1)
    assert not results["complete"]


@pytest.mark.slow
def test_a_killed_worker_loses_its_own_run_only(make_recipe, log, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_KILL", "rope")
    with pytest.raises(RunFailed, match="its process was killed"):
        run(make_recipe(seeds=[0, 1], workers=2))
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert sorted(row["arm"] for row in results["rows"]) == ["none", "none", "tupe-r", "tupe-r"]


def test_tuning_gives_each_arm_the_rate_with_the_best_validation_loss(make_recipe, log, tmp_path):
    results = run(make_recipe(seeds=[3], tune=[0.001, 0.002, 0.01]))
    assert {trial["learning_rate"] for trial in results["tuning"]} == {0.001, 0.002, 0.01}
    assert len(results["tuning"]) == 9
    assert [arm["learning_rate"] for arm in results["arms"]] == [0.002] * 3
    assert [row["learning_rate"] for row in results["rows"]] == [0.002] * 3
    trial, counted = (
        json.loads((tmp_path / "out" / "rope" / name / "metrics.json").read_text()) for name in ("tune-0.01", "seed-3")
    )
    assert "test" not in trial  # a rate is chosen without a look at it
    assert "test" in counted
    assert [best for _, best in rates_tried(parse_results(results)).rows[1].cells] == [False, True, False]
    for arm in results["arms"]:  # what the arms were given counts, not what the trials would say now
        arm["learning_rate"] = 0.01
    row = rates_tried(parse_results(results)).rows[1]
    assert ([best for _, best in row.cells], row.edge) == ([False, False, True], True)


def test_the_rate_of_the_encoding_is_tuned_beside_it(make_recipe, log, tmp_path):
    """With one multiple for all seeds of an arm, and none for an arm whose encoding has nothing to learn."""
    options = {"tune": [0.001, 0.002, 0.004], "tune_encoding": [1, 4, 16], "tune_seed": [100, 101], "tune_extend": 1}
    results = run(make_recipe(seeds=[0, 1], **options))
    assert [(arm["name"], arm["learning_rate"], arm.get("encoding_learning_rate")) for arm in results["arms"]] == [
        ("none", 0.002, None),
        ("rope", 0.002, None),
        ("tupe-r", 0.002, 16),  # 64, tried beyond the edge, is worse
    ]
    tried = [(one["arm"], one["seed"]) for one in results["tuning"]]
    assert [tried.count(("tupe-r", seed)) for seed in (100, 101)] == [9 + 1, 5 + 1]
    assert [tried.count(("rope", seed)) for seed in (100, 101)] == [3, 2]
    assert {row["encoding_learning_rate"] for row in results["rows"] if row["arm"] == "tupe-r"} == {16}
    assert (tmp_path / "out" / "tupe-r" / "tune-0.002-x64-seed-101" / "metrics.json").is_file()
    started = starts(log)
    again = run(make_recipe(seeds=[0, 1], **options))
    assert again["rows"] == results["rows"]
    assert starts(log) == started
    page = (tmp_path / "out" / "report.html").read_text()
    assert "0.002 x16" in page
    assert "Tuned over 5 to 16 trials per model" in page
    assert "Rate of the encoding, times that" in (tmp_path / "out" / "table.md").read_text()


def test_a_tuning_seed_that_counts_is_refused(make_recipe, log):
    with pytest.raises(BadInput, match=r"compare\.tune_seed: 1 is one of compare\.seeds"):
        run(make_recipe(seeds=[0, 1], tune=[0.1, 0.2], tune_seed=[1, 5]))


@pytest.mark.parametrize("option", [{"tune_encoding": [1, 4]}, {"tune_extend": 1}])
def test_options_of_tuning_need_rates(make_recipe, log, option):
    with pytest.raises(BadInput, match=rf"compare\.{next(iter(option))}: is only for compare\.tune"):
        run(make_recipe(seeds=[0, 1], **option))


def test_a_rate_that_diverges_is_an_answer_unless_all_do(make_recipe, log, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAIL", "rope/tune-0.002")
    results = run(make_recipe(seeds=[0], tune=[0.001, 0.002]))
    assert [arm["learning_rate"] for arm in results["arms"]] == [0.002, 0.001, 0.002]
    assert [trial["loss"] is None for trial in results["tuning"] if trial["arm"] == "rope"] == [False, True]
    assert results["failed"][0]["stage"] == "tuning"


def test_a_recipe_is_checked_once_and_each_arm_once(make_recipe, log, monkeypatch):
    """However many runs, rates and seeds there are."""
    checked, check_run = [], recipes.check_run
    monkeypatch.setattr(recipes, "check_run", lambda tables: checked.append(1) or check_run(tables))
    results = run(make_recipe(seeds=[0, 1, 2], tune=[0.001, 0.002]))
    assert len(results["rows"]) == 9
    assert len(checked) == 1 + 3


def test_an_arm_that_no_rate_trains_fails(make_recipe, log, monkeypatch, tmp_path):
    monkeypatch.setenv("STAND_IN_FAIL", "rope")
    with pytest.raises(RunFailed, match=r"no learning rate of compare\.tune could be trained"):
        run(make_recipe(seeds=[0], tune=[0.001, 0.002]))
    assert not any("rope seed-" in line for line in starts(log))
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    rows = {row.arm: row for row in rates_tried(parse_results(results)).rows}
    assert rows["none"].cells[1][1]
    assert rows["none"].edge
    assert rows["rope"].cells == (("failed", False), ("failed", False))
    assert not rows["rope"].edge


@pytest.mark.parametrize(
    ("arms", "fault"),
    [
        ({"a": {"data.length": 8}}, "data"),
        ({"a": {"tokenizer.vocab_size": 99}}, "data"),
        ({"a": {"training.max_steps": 8}}, "different amounts of data"),
        ({"a": {"training.batch_size": 8}}, "different batches"),
        ({"a": {"training.seed": 8}}, "comparison|seeds"),
        ({"a": {"model.max_position_embeddings": 32}}, "other data"),
        ({"Rope": {"model.encoding": "rope"}, "rope": {"model.encoding": "rope"}}, "case"),
        ({"figures": {"model.encoding": "rope"}}, "'figures' is the name of a file or folder"),
        ({"Report.html": {"model.encoding": "rope"}}, "'Report.html' is the name of a file or folder"),
        ({"results.json": {"model.encoding": "rope"}}, "'results.json' is the name of a file or folder"),
        (
            {"a": {"training.precision": "bf16"}},
            "must be the same for all arms.*an arm may change only .*learning_rate",
        ),
        ({"a": {"training.device": "cpu"}}, "must be the same for all arms"),
        ({"a": {"training.compile": "default"}}, "must be the same for all arms"),
        ({"a": {"training.select": "accuracy"}}, "must be the same for all arms"),
    ],
)
def test_arms_that_would_not_be_compared_fairly_are_refused(make_recipe, log, arms, fault):
    with pytest.raises(BadInput, match=fault):
        run(make_recipe(arms=arms))
    assert not starts(log)


def test_an_arm_may_change_how_its_weights_are_updated(make_recipe, log):
    changes = {"training.warmup_steps": 2, "training.lr_schedule": "cosine", "training.weight_decay": 0.1}
    arms = {"a": {"model.encoding": "rope", "training.adam_beta2": 0.98}, "b": changes}
    assert run(make_recipe(seeds=[0], arms=arms))["complete"]


def test_a_folder_that_cannot_be_written_is_refused_before_the_data_is_read(make_recipe, log, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(BadInput, match="cannot be written"):
            run(make_recipe(), output_dir=folder)
    assert log() == []


def test_tune_and_an_arms_own_rate_are_refused_together(make_recipe, log):
    arms = {"a": {"training.learning_rate": 0.1}, "b": {"model.encoding": "rope"}}
    with pytest.raises(BadInput, match=r"compare\.tune chooses"):
        run(make_recipe(arms=arms, tune=[0.1, 0.2]))
    arms = {"a": {"training.encoding_learning_rate": 4}, "b": {"model.encoding": "rope"}}
    with pytest.raises(BadInput, match=r"compare\.tune_encoding chooses"):
        run(make_recipe(arms=arms, tune=[0.1, 0.2], tune_encoding=[1, 4]))


def test_a_recipe_without_compare_is_refused(make_recipe, log):
    from dataclasses import replace

    with pytest.raises(BadInput, match=r"no \[compare\] section"):
        run(replace(make_recipe(), compare=None))


def children_of(process):
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()] if path.is_file() else []


def assert_gone(pids):
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if alive(pid)]


@pytest.mark.slow
def test_a_killed_comparison_takes_its_workers_with_it_and_goes_on_where_it_stopped(
    make_recipe, log, start_comparison, monkeypatch
):
    monkeypatch.setenv("STAND_IN_SECONDS", "60")
    monkeypatch.setenv("STAND_IN_QUICK", "none")
    recipe = make_recipe(seeds=[0], workers=2)
    process = start_comparison(recipe, until=3)
    pids = children_of(process)
    process.kill()
    process.wait()
    assert_gone(pids)
    monkeypatch.setenv("STAND_IN_SECONDS", "0")
    before = len(starts(log))
    assert len(run(make_recipe(seeds=[0]))["rows"]) == 3
    assert starts(log)[before:] == ["rope seed-0 0.002 resumed", "tupe-r seed-0 0.002 resumed"]


@pytest.mark.slow
def test_a_comparison_that_is_killed_while_it_tunes_ends_with_the_results_of_an_undisturbed_one(
    make_recipe, log, start_comparison, monkeypatch, tmp_path
):
    """Killed on the first tuning seed, on the second, beyond the edge of the grid and in the first run that counts."""
    arms = {name: {"model.encoding": name} for name in ("rope", "tupe-r")}
    tune = {"tune": [0.001, 0.002], "tune_encoding": [1, 4, 16], "tune_seed": [100, 101], "tune_extend": 1}
    recipe = make_recipe(seeds=[0, 1], arms=arms, **tune)
    killed = ["tune-0.002-x4-seed-100", "tune-0.002-x16-seed-101", "tune-0.002-x64-seed-101", "seed-0"]
    for place in killed:
        monkeypatch.setenv("STAND_IN_KILL", f"tupe-r/{place}")
        assert start_comparison(recipe, until=1).wait(timeout=90) == -signal.SIGKILL
        assert [line.split()[1] for line in starts(log) if line.startswith("tupe-r")][-1] == place
        assert not (tmp_path / "out" / "tupe-r" / place / "metrics.json").exists()
    monkeypatch.delenv("STAND_IN_KILL")
    found, trained = run(recipe), len(starts(log))
    whole = run(recipe, output_dir=tmp_path / "whole")
    assert len(starts(log)) - trained == trained - len(killed)  # nothing that had finished was trained again
    assert whole["arms"][1]["encoding_learning_rate"] == 16
    for name in ("tuning", "arms", "rows", "summary", "comparisons", "planned", "complete", "failed"):
        assert found[name] == whole[name]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="this system has no process groups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=["ctrl-c", "the terminal closes"])
def test_a_terminal_stops_the_workers_once_and_after_they_saved(
    make_recipe, log, start_comparison, monkeypatch, capfd, number
):
    monkeypatch.setenv("STAND_IN_SECONDS", "60")
    process = start_comparison(make_recipe(workers=2), until=2)
    pids = children_of(process)
    os.killpg(process.pid, number)
    assert process.wait(timeout=60) == 3
    assert len([line for line in log() if line.startswith("saved")]) == 2
    assert_gone(pids)
    assert capfd.readouterr().err == ""  # multiprocessing warns of semaphores that a dead process left behind


def test_sigterm_in_this_process_stops_between_and_within_runs(make_recipe, log, monkeypatch):
    monkeypatch.setenv("STAND_IN_SIGNAL", "rope")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped):
        run(make_recipe(seeds=[0]))
    assert signal.getsignal(signal.SIGTERM) == before
    assert starts(log) == ["none seed-0 0.002", "rope seed-0 0.002"]
    monkeypatch.delenv("STAND_IN_SIGNAL")
    assert run(make_recipe(seeds=[0]))["complete"]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.is_file() and re.search(r"\) Z ", stat.read_text()))


@pytest.mark.slow
def test_a_worker_has_one_thread_and_leaves_the_parent_its_own(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    worker = Worker()
    try:
        assert worker.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
    finally:
        worker.shutdown()
    assert os.environ["OMP_NUM_THREADS"] == "5"
    assert "MKL_NUM_THREADS" not in os.environ


def test_a_second_comparison_of_a_process_reads_its_texts_anew(make_recipe, tmp_path, log):
    tools = replace(STAND_IN, prepare=prepare)
    recipe = make_recipe(seeds=[0], arms={"none": {"model.encoding": "none"}})
    texts = tmp_path / "texts.jsonl"
    data: list[str] = []
    for name in ("one", "two"):
        compare(recipe, output_dir=tmp_path / name, pipeline=tools, progress=False)
        data.append(json.loads((tmp_path / name / "none" / "seed-0" / "arm.json").read_text())["data"])
        texts.write_text(texts.read_text().replace("peace", "bread"))
    assert data[0] != data[1]
