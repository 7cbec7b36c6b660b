"""Every rate with every seed, the median over the seeds, and the best rate: as TUPE's paper reports GLUE."""

import json
import sys
from statistics import median

import pytest
from comparison_example import read
from comparison_stand_in import LOSS, STAND_IN

from wordorder.comparison import compare, markdown_table
from wordorder.comparison.report.html import report_page
from wordorder.comparison.report.table import caption, rates_tried
from wordorder.errors import BadInput, RunFailed
from wordorder.training.recipe.comparison_section import check_compare

RATES = [0.001, 0.002, 0.004]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Leave out what costs time after every run; the tests make table and page where they look at them."""
    module = sys.modules["wordorder.comparison.compare"]  # the function of this name hides it in the package
    monkeypatch.setattr(module, "write_report", lambda results, folder: None)
    monkeypatch.setattr("wordorder.comparison.report.figures.write_figures", lambda results, folder: [])
    monkeypatch.setattr("wordorder.comparison.engines.local.release_memory", lambda: None)


def run(recipe, **options):
    return json.loads(compare(recipe, progress=False, pipeline=STAND_IN, **options).read_text())


def starts(log):
    return [line.removeprefix("start ") for line in log() if line.startswith("start")]


def test_each_arm_has_the_seeds_of_the_rate_whose_median_is_best(make_recipe, log, tmp_path):
    results = run(make_recipe(grid=RATES))
    assert len(starts(log)) == 27
    assert [(row["arm"], row["seed"]) for row in results["rows"]] == [
        (arm, seed) for seed in (0, 1, 2) for arm in ("none", "rope", "tupe-r")
    ]
    assert {row["learning_rate"] for row in results["rows"]} == {0.002}
    assert [arm["learning_rate"] for arm in results["arms"]] == [0.002] * 3
    assert (tmp_path / "out" / "rope" / "rate-0.004" / "seed-2" / "metrics.json").is_file()
    assert results["rows"][1]["model"] == "rope/rate-0.002/seed-0/model"
    assert (results["statistic"], results["complete"], results["tuning"]) == ("median", True, [])
    grid = {(entry["arm"], entry["learning_rate"]): entry for entry in results["grid"]}
    assert len(grid) == 9
    for (arm, rate), entry in grid.items():
        perplexities = [2.718281828 ** (LOSS[arm] + 0.01 * seed + 10 * abs(rate - 0.002)) for seed in (0, 1, 2)]
        assert list(entry["seeds"].values()) == pytest.approx(perplexities)
        assert entry["median"] == pytest.approx(median(perplexities))
        assert (entry["low"], entry["high"]) == pytest.approx((min(perplexities), max(perplexities)))
        assert entry["chosen"] == (rate == 0.002)


def test_the_result_is_the_median_and_not_the_mean(make_recipe, log, tmp_path):
    """A seed that learned nothing moves the mean and not the median."""
    recipe = make_recipe(grid=[0.002, 0.004], seeds=[0, 1, 2], arms={"rope": {"model.encoding": "rope"}})
    run(recipe)
    spoil(tmp_path / "out" / "rope" / "rate-0.002" / "seed-1", loss=9.0)
    results = run(recipe)
    assert [row["learning_rate"] for row in results["rows"]] == [0.002] * 3
    (entry,) = results["summary"]
    assert entry["loss"]["median"] == pytest.approx(2.02)
    assert entry["loss"]["mean"] > 4
    table = markdown_table(read(results))
    assert "median (lowest to highest) over 3 seeds" in table
    assert " ± " not in table.splitlines()[2].split("|")[2]
    assert f"({2.718281828**2:.3f} to " in table


def spoil(folder, **changes):
    metrics = json.loads((folder / "metrics.json").read_text())
    for split in ("validation", "test"):
        metrics[split] |= {"perplexity": 2.718281828 ** changes["loss"], **changes}
    (folder / "metrics.json").write_text(json.dumps(metrics))


def test_a_metric_that_is_better_when_higher_chooses_the_highest_median(make_recipe, log):
    recipe = make_recipe("training.select=accuracy", "data.test_source=none", grid=RATES)
    results = run(recipe)
    assert (results["metric"], results["split"], results["selection"]) == ("accuracy", "validation", "accuracy")
    assert {row["learning_rate"] for row in results["rows"]} == {0.002}
    assert max(results["grid"], key=lambda entry: entry["median"])["chosen"]
    table = markdown_table(read(results))
    assert "| Model | Validation accuracy |" in table
    assert "tupe-r is best: median validation accuracy 0.8190, 0.020 above rope" in table


def test_what_was_chosen_on_the_reported_split_is_called_optimistic(make_recipe, log, tmp_path):
    with_test = run(make_recipe(grid=RATES))
    assert "optimistic" not in caption(read(with_test))
    assert "best of 3 by the median over the seeds of masked-token perplexity on the validation split" in caption(
        read(with_test)
    )
    without = run(make_recipe("data.test_source=none"), output_dir=tmp_path / "without")
    assert "no test split: the checkpoints were chosen on the same data, so the numbers are optimistic" in caption(
        read(without)
    )


def test_a_rate_that_a_seed_fails_at_loses_and_the_comparison_is_whole(make_recipe, log, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAIL", "rope/rate-0.002/seed-1")
    results = run(make_recipe(grid=RATES))
    assert [arm["learning_rate"] for arm in results["arms"]] == [0.002, 0.001, 0.002]
    assert results["complete"]
    (failure,) = results["failed"]
    assert (failure["arm"], failure["seed"], failure["stage"], failure["learning_rate"]) == ("rope", 1, "grid", 0.002)
    (entry,) = [entry for entry in results["grid"] if entry["failed"]]
    assert (entry["arm"], list(entry["seeds"])) == ("rope", ["0", "2"])
    cells = next(row.cells for row in rates_tried(read(results)).rows if row.arm == "rope")
    assert [best for _, best in cells] == [True, False, False]
    assert cells[1][0].endswith("(1 failed)")
    assert "(1 failed)" in report_page(read(results))


def test_an_arm_that_fails_everywhere_fails_the_comparison(make_recipe, log, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAIL", "rope")
    with pytest.raises(RunFailed, match=r"3 of 9 runs failed(.|\n)*rope, seed 2: RunFailed"):
        run(make_recipe(grid=RATES))
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {row["arm"] for row in results["rows"]} == {"none", "tupe-r"}
    assert not results["complete"]
    assert [text for text, _ in next(row.cells for row in rates_tried(read(results)).rows if row.arm == "rope")] == [
        "failed"
    ] * 3


def test_a_stopped_grid_goes_on_and_a_wider_one_keeps_what_is_done(make_recipe, log):
    run(make_recipe(grid=RATES[:2]))
    before = len(starts(log))
    results = run(make_recipe(grid=RATES, seeds=[0, 1, 2, 3]))
    assert len(starts(log)) - before == 3 * (3 * 4 - 2 * 3)
    assert len(results["rows"]) == 12


def test_the_page_and_the_table_show_every_rate(make_recipe, log, tmp_path):
    results = run(make_recipe(grid=RATES))
    page, table = report_page(read(results)), markdown_table(read(results))
    for text in ("Learning rates tried", "median over the seeds", "from the lowest to the highest seed", "0.001"):
        assert text in page
    assert "one sample standard deviation over" not in page.split("Learning curves")[0]
    assert "| Model | 0.001 | 0.002 | 0.004 |" in table
    assert "Validation masked-token perplexity at each learning rate" in table
    tried = rates_tried(read(results))
    assert [best for _, best in tried.rows[0].cells] == [False, True, False]
    assert "a wider grid" not in tried.meaning
    edge = rates_tried(read(run(make_recipe(grid=[0.002, 0.004]), output_dir=tmp_path / "edge")))
    assert "a wider grid might help" in edge.meaning


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grid": [0.1, 0.1]}, "compare.grid: must be a list that holds no value twice, got [0.1, 0.1]"),
        ({"grid": [0.0]}, "compare.grid[0]: must be greater than 0, got 0.0"),
        ({"grid": ["fast"]}, "compare.grid[0]: must be a number, got 'fast'"),
        ({"grid": [0.1], "tune": [0.1]}, "compare.grid: chooses the learning rates, as compare.tune does"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(make_recipe, log, options, words):
    with pytest.raises(BadInput) as error:
        make_recipe(**options)
    assert any(words in fault for fault in error.value.faults), error.value.faults


def test_a_grid_and_an_arms_own_rate_are_refused_together(make_recipe, log):
    arms = {"a": {"training.learning_rate": 0.1}}
    with pytest.raises(BadInput, match=r"which compare\.grid chooses"):
        run(make_recipe(arms=arms, grid=RATES))
    assert not starts(log)


def test_trials_are_judged_by_the_metric_that_chooses_checkpoints(make_recipe, log):
    recipe = make_recipe("training.select=accuracy", seeds=[0], tune=RATES)
    results = run(recipe)
    assert results["selection"] == "accuracy"
    assert [arm["learning_rate"] for arm in results["arms"]] == [0.002] * 3
    tried = rates_tried(read(results))
    assert tried.meaning.startswith("Validation accuracy after training")
    assert [best for _, best in tried.rows[0].cells] == [False, True, False]


@pytest.mark.parametrize("name", ["tune", "grid"])
@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -0.1])
def test_rates_are_finite_and_positive(name, rate):
    expected = "greater than 0" if rate == -0.1 else "a finite number"
    _, faults = check_compare({name: [0.1, rate], "arms": [{"name": "a"}]})
    assert faults == [f"compare.{name}[1]: must be {expected}, got {rate}"]
