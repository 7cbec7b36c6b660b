"""Cross-validation inside a comparison: every arm on every fold, on the same texts, and the spread over the folds."""

import json
import re
import sys

import pytest
from comparison_example import example_results, read, summarised
from comparison_stand_in import STAND_IN

from wordorder.comparison import compare, markdown_table
from wordorder.comparison.report.html import report_page
from wordorder.comparison.report.table import caption, columns
from wordorder.comparison.report.verdict import verdict
from wordorder.errors import BadInput, RunFailed


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


@pytest.fixture
def folded(make_recipe):
    """A recipe of a comparison over folds; `folds` and other keywords go to [compare]."""

    def make(*overrides, folds=3, **fields):
        fields.setdefault("seeds", [0])
        return make_recipe("data.folds=4", *overrides, folds=folds, **fields)

    return make


def test_every_arm_meets_every_fold_with_every_seed(folded, log, tmp_path):
    results = run(folded(seeds=[0, 1]))
    assert [(row["seed"], row["fold"], row["arm"]) for row in results["rows"]] == [
        (seed, fold, arm) for seed in (0, 1) for fold in (0, 1, 2) for arm in ("none", "rope", "tupe-r")
    ]
    assert results["planned"] == {"arms": 3, "seeds": [0, 1], "folds": [0, 1, 2], "runs": 18, "rates": []}
    assert results["complete"]
    assert results["rows"][3]["model"] == "none/fold-1/seed-0/model"
    assert [fold["fingerprint"] for fold in results["folds"]] == ["same 0", "same 1", "same 2"]
    assert results["folds"][1]["documents"] == {"train": 9, "validation": 9, "test": 9}
    for fold in range(3):
        for arm in ("none", "rope", "tupe-r"):
            made = json.loads((tmp_path / "out" / arm / f"fold-{fold}" / "seed-1" / "arm.json").read_text())
            assert (made["recipe"]["data"]["fold"], made["data"]) == (fold, f"same {fold}")


def test_the_spread_is_over_the_folds_and_seeds_of_one_fold_are_averaged_first(folded, log):
    results = run(folded(seeds=[0, 1]))
    # loss = 4.0 + 0.01 seed + 0.1 fold: seeds average to 4.005, 4.105, 4.205
    loss = results["summary"][0]["loss"]
    assert (loss["mean"], loss["std"], loss["n"]) == (pytest.approx(4.105), pytest.approx(0.1), 3)
    assert (loss["low"], loss["high"]) == (pytest.approx(4.005), pytest.approx(4.205))
    assert "fold" not in results["summary"][0]


def test_a_fold_whose_seed_is_missing_still_counts_once():
    rows = [{"arm": "a", "seed": s, "fold": f, "loss": v} for s, f, v in ((0, 0, 1.0), (1, 0, 3.0), (0, 1, 4.0))]
    assert summarised(rows)[0]["loss"]["mean"] == pytest.approx(3.0)


def test_folds_go_on_where_they_stopped_and_new_ones_are_added(folded, log):
    run(folded(folds=[0, 2]))
    assert len(starts(log)) == 6
    results = run(folded(folds=4))
    assert len(starts(log)) == 12
    assert len(results["rows"]) == 12


def test_cost_is_that_of_the_vocabulary_of_each_fold(folded, log):
    run(folded(seeds=[0, 1], folds=2))
    assert len({line for line in log() if line.startswith("cost")}) == 6


def test_texts_that_changed_under_the_name_of_one_fold_are_refused(folded, log, tmp_path):
    run(folded(folds=2))
    made = tmp_path / "out" / "rope" / "fold-1" / "seed-0" / "arm.json"
    made.write_text(made.read_text().replace("same 1", "other"))
    with pytest.raises(BadInput) as caught:
        run(folded(folds=2))
    assert len(caught.value.faults) == 1
    assert "fold-1" in caught.value.faults[0]
    assert "the data changed under its name" in caught.value.faults[0]


@pytest.mark.slow
def test_workers_train_folds_as_one_process_does(folded, log, tmp_path):
    alone = run(folded(folds=2), output_dir=tmp_path / "alone")
    many = run(folded(folds=2, workers=2), output_dir=tmp_path / "many")
    assert many["rows"] == alone["rows"]
    for way in ("alone", "many"):
        made = tmp_path / way / "rope" / "fold-1" / "seed-0" / "arm.json"
        assert json.loads(made.read_text())["data"] == "same 1"


def test_a_failure_names_its_fold(folded, log, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAIL", "rope/fold-1/seed-0")
    with pytest.raises(RunFailed, match="rope, fold 1, seed 0: RunFailed: the loss is NaN"):
        run(folded())
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (results["failed"][0]["fold"], results["complete"]) == (1, False)
    assert "- failed: rope, fold 1, seed 0: RunFailed" in markdown_table(read(results))
    assert "rope, fold 1, seed 0, seeds" in report_page(read(results))
    assert verdict(read(results)).status.endswith("Failed, and so in no mean and no test: rope (1).")


def test_tuning_uses_the_first_fold_and_a_grid_every_fold(folded, log, tmp_path):
    tuned = run(folded(folds=[2, 1], tune=[0.002, 0.004]), output_dir=tmp_path / "tuned")
    assert {trial["fold"] for trial in tuned["tuning"]} == {2}
    assert {row["learning_rate"] for row in tuned["rows"]} == {0.002}
    grid = run(folded(folds=2, grid=[0.002, 0.004]), output_dir=tmp_path / "grid")
    assert grid["rows"][3]["model"] == "none/rate-0.002/fold-1/seed-0/model"
    assert list(grid["grid"][0]["seeds"]) == ["0, fold 0", "0, fold 1"]
    assert "median over 2 folds" in caption(read(grid))
    assert "median over the folds" in report_page(read(grid))


def test_table_and_report_say_that_the_spread_is_over_folds(folded, log, tmp_path):
    results = run(folded())
    text = markdown_table(read(results))
    assert "mean ± standard deviation over 3 folds" in text
    assert (
        "Cross-validation with 3 of 4 folds: no text is tested in two of them, and models are paired by fold." in text
    )
    assert "over 3 folds" in text
    assert "over the seeds" not in text
    page = report_page(read(results))
    assert "Models × folds × seeds" in page
    assert "3 × 3 × 1" in page
    assert "mean over the folds" in page
    assert "over the seeds" not in page
    independent = run(folded("data.fold_kind=independent"), output_dir=tmp_path / "other")
    assert "Each fold is a draw of its own of 1/4 of the texts" in caption(read(independent))


def test_one_seed_where_folds_are_given_and_seeds_are_not(tmp_path, make_recipe, log):
    path = make_recipe("data.folds=4", folds=3).path
    path.write_text(re.sub(r"^seeds = .*\n", "", path.read_text(), flags=re.MULTILINE))
    from wordorder.training import read_recipe

    config = read_recipe(path, ["data.folds=4"]).compare
    assert (config.seeds, config.folds) == ((0,), (0, 1, 2))
    assert read_recipe(path, ["data.folds=4", "compare.folds=[]"]).compare.seeds == (0, 1, 2)


@pytest.mark.parametrize(
    ("overrides", "folds", "fault"),
    [
        (["data.folds=2"], 3, r"compare\.folds: data\.folds = 2 has the folds 0 to 1, got \[0, 1, 2\]"),
        ([], 3, r"compare\.folds: the data is not divided; say into how many parts by data\.folds"),
        (["data.folds=4"], [1, 1], r"compare\.folds: must be a list that holds no value twice"),
        (["data.folds=4"], [-1], r"compare\.folds\[0\]: must be at least 0"),
        (["data.folds=4"], 0, r"compare\.folds: must be at least 1 and at most 10,000, or a list"),
        (["data.folds=4"], "all", r"compare\.folds: must be a list, each an integer, got 'all'"),
    ],
)
def test_folds_that_are_not_there_are_refused(make_recipe, overrides, folds, fault):
    with pytest.raises(BadInput, match=fault):
        make_recipe(*overrides, folds=folds)


def test_an_arm_has_no_fold_of_its_own(make_recipe):
    with pytest.raises(BadInput, match=r"data\.fold: an arm may only change \[model\] and \[training\]"):
        make_recipe("data.folds=4", folds=2, arms={"a": {"data.fold": 1}})


def test_a_resolved_recipe_repeats_the_folds(folded, tmp_path):
    from wordorder.training import read_recipe

    recipe = folded(folds=[2, 0])
    (tmp_path / "again.toml").write_text(recipe.to_toml())
    assert read_recipe(tmp_path / "again.toml").compare == recipe.compare


def test_an_optimistic_protocol_is_labelled_wherever_a_number_stands(folded, log, tmp_path):
    results = run(folded("data.protocol=best-checkpoint-on-test"))
    assert (results["protocol"], results["optimistic"]) == ("best-checkpoint-on-test", True)
    assert columns(read(results))[0].title.endswith(", optimistic")
    assert "so the numbers are optimistic" in markdown_table(read(results))
    assert "optimistic test masked-token perplexity" in verdict(read(results)).sentence
    page = report_page(read(results))
    assert "so the numbers are optimistic" in page
    assert page.count("perplexity, optimistic") >= 2  # the table and the figure's axis
    tuned = {**results, "planned": results["planned"] | {"rates": [0.1, 0.2]}}
    assert "learning rate is the best of 2 on the held-out texts themselves." in caption(read(tuned))
    honest = run(folded(), output_dir=tmp_path / "honest")
    assert (honest["protocol"], honest["optimistic"]) == ("test-once", False)
    assert ", optimistic" not in markdown_table(read(honest))
    assert "are optimistic" not in markdown_table(read(honest))
    assert "optimistic" not in verdict(read(honest)).sentence


def test_scores_on_validation_alone_are_optimistic_too(make_recipe, log):
    results = run(make_recipe("data.test_source=none", seeds=[0]))
    assert (results["protocol"], results["optimistic"]) == ("validation-only", True)
    assert "| Validation masked-token perplexity |" in markdown_table(read(results))
    assert "so the numbers are optimistic" in markdown_table(read(results))


def test_results_of_earlier_versions_are_read():
    results = example_results()  # has neither folds nor protocol
    assert "over 3 seeds" in caption(read(results))
    assert "optimistic" not in markdown_table(read(results))
