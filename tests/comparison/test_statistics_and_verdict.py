import math

import numpy as np
import pytest
from comparison_example import example_results

from wordorder.comparison.numbers import significant, with_spread
from wordorder.comparison.quality import METRICS, metric_of, quality_of
from wordorder.comparison.statistics import mean_and_spread, median_and_range, summarise
from wordorder.comparison.table import caption
from wordorder.comparison.verdict import ranked, verdict


@pytest.mark.parametrize("values", [[3.0, 4.0], [1.5, 1.5, 2.5], [7.0, 1.0, 4.0, 9.0]])
def test_mean_and_sample_standard_deviation_equal_numpys(values):
    found = mean_and_spread(values)
    assert found == {
        "mean": pytest.approx(np.mean(values)),
        "std": pytest.approx(np.std(values, ddof=1)),
        "n": len(values),
    }


def test_one_value_has_no_spread_and_what_is_not_finite_does_not_count():
    assert mean_and_spread([2.0, math.nan, math.inf]) == {"mean": 2.0, "std": None, "n": 1}
    assert mean_and_spread([]) == {"mean": None, "std": None, "n": 0}


def test_summary_leaves_out_what_is_no_measurement():
    rows = [{"arm": "a", "seed": n, "loss": 1.0 + n, "accuracy": None, "model": "x", "curve": []} for n in range(2)]
    (entry,) = summarise(rows)
    assert entry == {
        "arm": "a",
        "loss": {"mean": 1.5, "std": pytest.approx(0.7071, abs=1e-4), "n": 2, "median": 1.5, "low": 1.0, "high": 2.0},
    }


@pytest.mark.parametrize("values", [[3.0], [3.0, 4.0], [9.0, 1.0, 4.0], [7.0, 1.0, 4.0, 9.0, 100.0]])
def test_median_and_range_equal_numpys(values):
    expected = {"median": np.median(values), "low": min(values), "high": max(values)}
    assert median_and_range([*values, math.nan]) == pytest.approx(expected)
    assert median_and_range([]) == {"median": None, "low": None, "high": None}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.6, 0.621, 0.5], "0.6000 (0.5000 to 0.6210)"),
        ([0.6, 0.5], "0.5500"),
        ([-0.01, 0.0, 0.0123456, 0.5, 0.0], "0 (-0.01000 to 0.5000)"),
        ([], "–"),
    ],
)
def test_a_median_is_shown_with_its_lowest_and_highest_seed(values, text):
    assert with_spread({**mean_and_spread(values), **median_and_range(values)}, statistic="median") == text


@pytest.mark.parametrize(
    ("mean", "std", "n", "text"),
    [
        (33.4567, 0.312, 3, "33.46 ± 0.31"),
        (34.1094, 0.0992, 3, "34.11 ± 0.10"),
        (312.2, 12.3, 5, "312 ± 12"),
        (0.91234, 0.00417, 3, "0.9123 ± 0.0042"),
        (33.4567, 0.312, 2, "33.46"),
        (33.4567, None, 1, "33.46"),
        (2.0, 0.0, 3, "2.000 ± 0.000"),
        (None, None, 0, "–"),
    ],
)
def test_a_number_has_the_digits_that_its_spread_allows(mean, std, n, text):
    assert with_spread({"mean": mean, "std": std, "n": n}) == text


def test_significant_digits():
    assert [significant(value) for value in (1234567.0, 0.0012345, 0.0, None)] == ["1,234,567", "0.001234", "0", "–"]


def test_arms_apart_are_told_with_their_ratio():
    judged = verdict(example_results({"rope": 40.0, "tupe-r": 30.0}))
    assert judged.best == "tupe-r"
    assert not judged.ties
    assert judged.sentence.startswith("tupe-r has the lowest test masked-token perplexity, 30")
    assert "1.33 times lower than rope" in judged.sentence


def test_arms_whose_ranges_overlap_are_not_distinguishable():
    judged = verdict(example_results({"rope": 30.01, "tupe-r": 30.0}))
    assert len(judged.ties) == 1
    assert "is not distinguishable from" in judged.sentence


def test_a_tie_at_the_top_is_told_beside_the_arm_that_is_behind():
    judged = verdict(example_results({"none": 300.0, "rope": 30.01, "tupe-r": 30.0}))
    assert "not distinguishable from" in judged.sentence
    assert "10.0" in judged.sentence
    assert judged.ties in [("rope",), ("tupe-r",)]


@pytest.mark.parametrize(("task", "metric"), [("classification", "accuracy"), ("masked-lm", "perplexity")])
def test_equal_means_of_too_few_seeds_are_called_equal(task, metric):
    results = example_results({"none": 1.5, "rope": 1.5, "tupe-r": 1.5, "t5": 1.5}, seeds=1, task=task)
    for row in results["rows"]:
        row[metric] = 1.5 if row["arm"] != "t5" else {"accuracy": 1.0, "perplexity": 2.0}[metric]
    results["summary"] = summarise(results["rows"])
    assert verdict(results).sentence.endswith(", the same as rope and tupe-r.")


@pytest.mark.parametrize("seeds", [1, 2])
def test_too_few_seeds_give_no_claim(seeds):
    judged = verdict(example_results({"rope": 40.0, "tupe-r": 30.0}, seeds=seeds))
    assert "no spread to judge by" in judged.evidence
    assert "±" not in judged.sentence


def test_more_is_better_for_accuracy():
    results = example_results({"rope": 0.7, "tupe-r": 0.8}, task="classification")
    assert [entry["arm"] for entry in ranked(results)] == ["tupe-r", "rope"]
    assert "highest test accuracy" in verdict(results).sentence


SEEDS = {"bert-a": [0.50, 0.52, 0.51, 0.49, 0.10], "tupe-a": [0.61, 0.60, 0.62, 0.59, 0.53]}


def in_medians(seeds=SEEDS, **changes):
    """Results of a grid: the headline is a median on the validation split."""
    results = example_results({arm: 0.5 for arm in seeds}, task="classification", seeds=5)
    for row in results["rows"]:
        row["matthews_correlation"] = seeds[row["arm"]][row["seed"]]
    results["summary"] = summarise(results["rows"])
    return results | {"metric": "matthews_correlation", "split": "validation", "statistic": "median"} | changes


def test_medians_are_compared_by_the_range_of_the_seeds():
    judged = verdict(in_medians())
    assert judged.sentence == (
        "tupe-a has the highest median validation Matthews correlation, 0.6000 (0.5300 to 0.6200), "
        "0.1 above bert-a (0.5000 (0.1000 to 0.5200))."
    )
    assert judged.evidence.startswith(
        "Two arms count as distinguishable when their ranges, from the lowest to the highest"
    )
    near = verdict(in_medians({**SEEDS, "tupe-a": [0.61, 0.60, 0.62, 0.59, 0.515]}))
    assert near.ties == ("bert-a",)
    # By the mean one bad seed decides: bert-a's range then reaches from 0.24 to 0.60.
    assert verdict(in_medians(statistic="mean")).ties == ("bert-a",)


def test_arms_are_ranked_by_the_median_where_the_mean_says_otherwise():
    seeds = {"steady": [0.5, 0.5, 0.5, 0.5, 0.5], "lucky": [0.6, 0.6, 0.6, 0.0, 0.0]}
    assert [entry["arm"] for entry in ranked(in_medians(seeds))] == ["lucky", "steady"]
    assert [entry["arm"] for entry in ranked(in_medians(seeds, statistic="mean"))] == ["steady", "lucky"]


@pytest.mark.parametrize(
    ("metric", "name"), [(m, q.name) for m, q in METRICS.items() if m not in ("perplexity", "accuracy")]
)
def test_every_metric_can_be_the_headline(metric, name):
    results = in_medians()
    for row in results["rows"]:
        row[metric] = row["matthews_correlation"]
    results |= {"summary": summarise(results["rows"]), "metric": metric, "statistic": "mean"}
    assert f"highest validation {name}, 0.59" in verdict(results).sentence
    assert quality_of(results).meaning.format(split="validation") in caption(results)


def test_the_headline_is_the_recipes_metric_or_the_tasks():
    assert metric_of("classification", {"metric_for_best_model": "f1"}) == "f1"
    assert metric_of("classification", {"metric_for_best_model": "loss"}) == "accuracy"
    assert metric_of("regression", {}) == "pearson"
    assert metric_of("masked-lm", {"metric_for_best_model": "loss"}) == "perplexity"


def test_an_unfinished_comparison_says_so():
    results = example_results({"rope": 40.0, "tupe-r": 30.0})
    results["complete"], results["planned"]["runs"] = False, 10
    assert "Only 6 of 10 runs have finished" in verdict(results).evidence


def test_nothing_finished_yet():
    results = example_results()
    results["rows"], results["summary"] = [], []
    assert verdict(results).sentence == "No run has finished yet."
