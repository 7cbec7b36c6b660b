"""Every look at the results of a comparison is kept, and told at the next one."""

import json
from importlib import import_module

import pytest
from comparison_example import example_results, read
from comparison_stand_in import STAND_IN

from wordorder.comparison import compare
from wordorder.comparison.report.verdict import verdict
from wordorder.comparison.statistics.summary import with_look


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("wordorder.comparison.report.figures.write_figures", lambda results, folder: [])
    monkeypatch.setattr("wordorder.comparison.engines.local.release_memory", lambda: None)
    monkeypatch.setattr(import_module("wordorder.comparison.compare"), "write_report", lambda results, folder: None)


@pytest.fixture
def looked(make_recipe, log, tmp_path):
    def run(*overrides, name="out", **options):
        recipe = make_recipe(*overrides, **options)
        return json.loads(
            compare(recipe, output_dir=tmp_path / name, progress=False, pipeline=STAND_IN).read_text("utf-8")
        )

    return run


def in_file(function, content):
    """What a file will hold of its looks, by one of the functions that return them."""
    return json.loads(json.dumps([look.as_json() for look in function(read(content))]))


def in_short(results):
    return [(look["runs"].get("rope"), look["baseline"], look["confidence"]) for look in results["looks"]]


def test_a_look_is_kept_when_seeds_family_or_level_are_others(looked):
    first = looked(seeds=[0])
    assert in_short(first) == [(1, None, 0.95)]
    assert first["looks"][0]["runs"] == {"none": 1, "rope": 1, "tupe-r": 1}
    assert looked(seeds=[0])["looks"] == first["looks"]  # the same results again are no other look
    assert in_short(looked(seeds=[0, 1])) == [(1, None, 0.95), (2, None, 0.95)]
    looked(seeds=[0, 1], baseline="rope")
    last = looked(seeds=[0, 1], baseline="rope", confidence=0.9)
    assert in_short(last)[2:] == [(2, "rope", 0.95), (2, "rope", 0.9)]
    assert last["looks"][0] == first["looks"][0]
    assert [look["date"] for look in last["looks"]] == sorted(look["date"] for look in last["looks"])
    assert (
        "Fourth look at these results; earlier looks: n = 1 (all pairs of arms, confidence 95%"
        in verdict(read(last)).evidence
    )


def test_a_file_that_cannot_be_read_has_no_looks(looked, tmp_path):
    path = tmp_path / "out" / "results.json"
    looked(seeds=[0, 1])  # makes the folder that of a comparison
    for damaged in ("[]", "{", '{"rows": [1]}', '{"looks": [1]}', '{"looks": 1}', '{"looks": [{}]}'):
        path.write_text(damaged, "utf-8")
        assert in_short(looked(seeds=[0, 1])) == [(2, None, 0.95)]


def test_the_first_look_says_nothing():
    results = example_results({"rope": 40.0, "t5": 50.0}, seeds=6)
    assert "look" not in verdict(read(results)).evidence
    results["looks"] = in_file(with_look, results)
    assert "look" not in verdict(read(results)).evidence
    more = {**example_results({"rope": 40.0, "t5": 50.0}, seeds=8), "looks": results["looks"]}
    assert "Second look at these results; earlier looks: n = 6 (all pairs of arms" in verdict(read(more)).evidence


def test_other_seeds_in_the_same_number_are_another_look():
    first = example_results({"rope": 40.0, "t5": 50.0}, seeds=6)
    first["looks"] = in_file(with_look, first)
    other = example_results({"rope": 40.0, "t5": 50.0}, seeds=6)
    for row in other["rows"]:
        row["seed"] += 6
    other["looks"] = in_file(with_look, {**other, "looks": first["looks"]})
    assert [look["seeds"]["rope"] for look in other["looks"]] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert "Second look at these results; earlier looks: n = 6 (" in verdict(read(other)).evidence
    assert "confidence 95%, seeds 0 to 5, " in verdict(read(other)).evidence


@pytest.mark.parametrize("changed", [{"statistic": "median"}, {"metric": "accuracy"}])
def test_another_statistic_or_metric_is_another_look(changed):
    results = example_results({"rope": 40.0, "t5": 50.0}, seeds=6)
    results["looks"] = in_file(with_look, results)
    assert len(in_file(with_look, {**results, **changed})) == 2


def test_seeds_of_folds_are_told_apart():
    results = example_results({"rope": 40.0, "t5": 50.0}, seeds=2)
    results["rows"] = [{**row, "fold": fold} for row in results["rows"] for fold in (0, 1)]
    results["looks"] = in_file(with_look, results)
    assert results["looks"][0]["seeds"]["t5"] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert (
        len(in_file(with_look, {**results, "rows": [{**row, "fold": row["fold"] + 2} for row in results["rows"]]})) == 2
    )


@pytest.mark.parametrize("grid", [[], [0.002, 0.004]])
def test_files_that_are_written_between_runs_test_nothing(looked, monkeypatch, grid):
    written = []
    monkeypatch.setattr(import_module("wordorder.comparison.compare"), "write_report", lambda r, _: written.append(r))
    results = looked(seeds=[0, 1, 2, 3, 4, 5], grid=grid)
    *partial, before, after = written  # the last run's, and the end's
    assert [entry.waiting for entry in partial] == list(range(len(partial), 0, -1))
    assert not any(entry.comparisons or entry.complete or entry.looks for entry in partial)
    assert before.comparisons == after.comparisons != ()
    assert after.as_json() == results
    assert (results["waiting"], results["complete"], len(results["looks"])) == (0, True, 1)
