import math
import re

import numpy as np
import pytest
from comparison_example import compared, example_results, read, summarised
from test_claims import example, kept_of
from test_significance import results_of

from wordorder.comparison.report.differences import significant, with_spread
from wordorder.comparison.report.table import caption
from wordorder.comparison.report.verdict import ranked, verdict
from wordorder.comparison.results_file import Aggregate
from wordorder.comparison.statistics.significance import compare_arms
from wordorder.comparison.statistics.summary import (
    METRICS,
    mean_and_spread,
    median_and_range,
    metric_of,
    quality_of,
    summarise,
)


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
    (entry,) = summarised(rows)
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
    assert with_spread(Aggregate(**mean_and_spread(values), **median_and_range(values)), statistic="median") == text


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
    assert with_spread(Aggregate(mean=mean, std=std, n=n)) == text


def test_significant_digits():
    assert [significant(value) for value in (1234567.0, 0.0012345, 0.0, None)] == ["1,234,567", "0.001234", "0", "–"]


def test_the_first_layer_is_in_percent_and_the_second_says_how_it_was_tested():
    judged = verdict(read(example_results({"rope": 40.0, "tupe-r": 30.0}, seeds=6)))
    assert (judged.best, judged.ties) == ("tupe-r", ())
    assert re.fullmatch(r"tupe-r is best: masked-token perplexity 30\.\d+, 25% below rope\.", judged.sentence)
    assert judged.status == "Significant (the permutation test): better than rope."
    found = re.search(
        r"tupe-r 30\.\d+ ± \S+, rope 40\.\d+ ± \S+ \(mean ± standard deviation over the seeds\); "
        r"difference −(\S+)% \(95% interval \[−(\S+)%, −(\S+)%\], p = 0\.\d+, n = 6\)\.",
        judged.evidence,
    )
    size, low, high = (float(number) for number in found.groups())
    assert 23 < high < size < low < 26.5
    assert "by the permutation test over 6 seeds" in judged.evidence


def test_a_pilot_names_no_best_within_a_standard_deviation():
    level = verdict(read(example_results({"rope": 30.01, "tupe-r": 30.0}, seeds=2)))
    assert "has the lowest mean masked-token perplexity" in level.sentence
    assert level.status.startswith("Pilot: 2 seeds")
    apart = verdict(read(example_results({"rope": 60.0, "tupe-r": 30.0}, seeds=2)))
    assert apart.sentence.startswith("tupe-r is best")


def test_three_seeds_are_tested():
    judged = verdict(read(example_results({"rope": 4000.0, "tupe-r": 30.0})))
    assert judged.ties == ()
    assert judged.sentence.endswith(", 99.25% below rope.")  # not 99: the digits say how near to nothing it is
    assert judged.status == "Significant (Welch's test with a common floor): better than rope."


def test_a_lead_that_is_not_significant_is_called_so_in_the_same_breath():
    judged = verdict(read(example_results({"rope": 40.0, "t5": 30.01, "none": 100.0, "tupe-r": 30.0})))
    assert re.fullmatch(
        r"(t5|tupe-r) has the lowest mean masked-token perplexity, 30\.\d+: not significantly below (t5|tupe-r) "
        r"\(30\.\d+\), 25% below rope\.",  # the baseline
        judged.sentence,
    )
    assert re.match(
        r"Significant \(Welch's test with a common floor\): better than rope and none\. "
        r"Not significant against (t5|tupe-r)\.$",
        judged.status,
    )
    same = results_of({"x": [0.8001, 0.8, 0.7999], "y": [0.8, 0.8001, 0.7998], "z": [0.7, 0.7001, 0.6999]})
    same["summary"] = summarised(same["rows"])
    told = verdict(read(same))
    assert told.status.endswith(": better than z. The same within 0.01: y.")
    assert "not significantly above y" in told.sentence


def test_what_was_not_held_equal_stands_beside_the_verdict():
    results = example_results({"none": 300.0, "rope": 40.0, "tupe-r": 30.0}, seeds=7)
    for arm, total in zip(results["arms"], (1_000_000, 1_050_000, 1_120_000), strict=True):
        arm["parameters"] = {"total": total}
    judged = verdict(read(results))
    assert judged.caveat.startswith("Budgets not matched: tupe-r has 12% more parameters than none.")
    assert judged.headline == (judged.sentence, f"{judged.status} {judged.caveat}")
    results["arms"][1]["parameters"] = {"total": 1_200_000}
    assert verdict(read(results)).caveat.startswith(
        "Budgets not matched: rope has 20% more parameters than none; tupe-r has 12% more parameters than none."
    )
    results["budget"] = {"match": "flops"}
    assert verdict(read(results)).caveat.startswith("Parameters not matched: rope has 20% more")
    for arm in results["arms"]:
        arm["parameters"] = {"total": 1_000_000}
    assert "matched" not in verdict(read(results)).caveat


def test_models_whose_loss_still_falls_are_named_best_first():
    results = example_results({"none": 300.0, "rope": 40.0, "tupe-r": 30.0}, seeds=7)
    ends = {"none": 5.69, "rope": 3.60, "tupe-r": 3.40}
    for row in results["rows"]:
        end = ends[row["arm"]]
        row["curve"] = [[50, end * (1.01 if row["arm"] == "none" else 1.2)], [75, end], [100, end]]
    assert "Hardly begun: tupe-r, rope and none." in verdict(read(results)).caveat
    results["data"]["train"]["tokens"] = 100_000  # 97 seconds at some 21,000 tokens
    assert "Still improving: tupe-r and rope." in verdict(read(results)).caveat
    assert re.search(r"\b(19|2\d) passes over the training text\.", verdict(read(results)).caveat)


def test_what_holds_on_new_texts_is_told_in_a_sentence_each():
    losses, results = example()
    found = compare_arms(results, kept_of(losses, np.arange(40) // 3))
    told = {"comparisons": found.comparisons, "significance": found.significance, "summary": summarise(results.rows)}
    judged = verdict(results.having(**told))
    here, both = judged.claims
    assert re.fullmatch(
        r"These trained models, on new texts: b is better than a "
        r"\(\d+% below, 95% interval \d+% to \d+%, p < 0\.001\), "
        r"by sign flips of 40 segments \(few\); segments of one document go together, so that the p-value may "
        r"be too small\.",
        here,
    )
    assert re.match(r"Retrained, and on new texts: b is better than a \(\d+% below", both)
    assert "by crossed random effects of 3 seeds and 40 segments, which assume roughly normal seeds" in both
    assert "segments of one document" not in both  # said once
    assert judged.method == (judged.evidence, here, both)


def test_ranges_are_described_where_nothing_can_be_claimed():
    results = example_results({"none": 300.0, "rope": 30.01, "tupe-r": 30.0}) | {"statistic": "median"}
    results["recipe"]["compare"]["confidence"] = 0.99
    judged = verdict(read(results))
    assert judged.status == "Pilot: 3 seeds; a test needs 5: --seeds 5."
    assert len(judged.ties) == 2
    assert re.search(
        r"\(lowest to highest seed\): (\S+) overlaps with (rope|tupe-r); \1 does not overlap with none\.$",
        judged.evidence,
    )


def test_a_difference_that_the_test_does_not_find_is_not_significant():
    judged = verdict(read(example_results({"rope": 30.2, "tupe-r": 30.0}, seeds=8)))
    assert len(judged.ties) == 1
    assert re.search(r": not significantly below \S+ \(30\.\d+\)\.$", judged.sentence)
    assert re.fullmatch(r"(Not significant .* against|The same within 1% .*:) \S+\.", judged.status)
    assert re.search(r"difference \S+% \(95% interval \[.*\], .+ \(p = 0\.\d+\), n = 8\)", judged.evidence)


def test_a_tie_at_the_top_is_told_beside_the_model_that_is_behind():
    judged = verdict(read(example_results({"none": 300.0, "rope": 30.01, "tupe-r": 30.0}, seeds=8)))
    assert re.search(r"not significantly below \S+ \(30\.\d+\), 90% below none\.$", judged.sentence)
    assert judged.status.startswith("Significant (the permutation test): better than none.")
    assert judged.ties in [("rope",), ("tupe-r",)]


def test_all_models_are_named_with_their_p_values():
    judged = verdict(read(example_results({"none": 300.0, "rope": 40.0, "t5": 50.0, "tupe-r": 30.0}, seeds=7)))
    assert re.search(r"is best: .*, 25% below rope, 90% below none\.$", judged.sentence)
    assert judged.status.endswith("better than rope, t5 and none.")
    assert re.search(r"p against the others: t5 0\.0\d+ and none 0\.0\d+\.", judged.evidence)
    assert "corrected for all pairs of models (6) by Shaffer's method." in judged.evidence


def test_against_a_baseline_the_other_arms_are_not_tested():
    results = example_results({"none": 300.0, "rope": 40.0, "t5": 50.0, "tupe-r": 30.0}, seeds=6)
    results["recipe"]["compare"]["baseline"] = results["baseline"] = "rope"
    judged = verdict(read(results))
    assert "25% below rope" in judged.sentence
    assert judged.status.endswith("better than rope. Not tested against t5 and none.")
    assert judged.ties == ("t5", "none")
    assert (
        "Against the baseline rope: significantly worse: none and t5; significantly better: tupe-r. Other pairs were"
        in judged.evidence
    )
    assert "corrected for every other model against rope (3)" in judged.evidence
    results["recipe"]["compare"]["baseline"] = results["baseline"] = "tupe-r"
    assert verdict(read(results)).ties == ()
    # a runner-up that was not tested: the sentence says so
    results["recipe"]["compare"]["baseline"] = results["baseline"] = "t5"
    assert re.search(
        r"has the lowest mean .*, 30\.\d+: 25% below rope \(not tested\), 40% below t5\.$",
        verdict(read(results)).sentence,
    )


def test_one_network_under_two_names_is_called_identical():
    results = example_results({"rope": 30.0, "t5": 50.0})
    results["rows"] += [row | {"arm": "twin"} for row in results["rows"] if row["arm"] == "rope"]
    results["summary"] = summarised(results["rows"])
    judged = verdict(read(results))
    assert ": identical to twin on every common seed." in judged.sentence
    assert "Identical on every common seed: twin." in judged.status


def test_an_arm_that_lost_seeds_is_told_with_those_that_it_has():
    results = example_results({"rope": 40.0, "t5": 50.0, "tupe-r": 30.0}, seeds=7)
    results["rows"] = [row for row in results["rows"] if row["arm"] != "rope" or row["seed"] < 4]
    results["summary"] = summarised(results["rows"])
    judged = verdict(read(results))
    assert judged.ties == ()
    assert "Welch's test with a common floor and the permutation test" in judged.status
    assert judged.status.endswith("better than rope and t5.")


def test_the_comparisons_of_the_file_are_what_is_told():
    results = example_results({"rope": 40.0, "tupe-r": 30.0}, seeds=6)
    results |= compared(results)
    results["comparisons"][0] |= {"outcome": "not distinguishable", "p_adjusted": 0.42}
    assert "not significantly below rope (40" in verdict(read(results)).sentence
    assert "p = 0.42" in verdict(read(results)).evidence


@pytest.mark.parametrize(
    ("finals", "beaten"),
    [({"none": 0.92, "rope": 0.91}, False), ({"none": 0.92, "rope": 0.97}, True), ({"none": 0.9}, False)],
)
def test_models_that_only_guess_are_not_ranked(finals, beaten):
    results = example_results(finals, task="classification")
    assert "guessing" not in verdict(read(results)).sentence.lower()  # of older results nothing is known
    counted = {**results, "data": {"test": {"documents": 1000, "classes": {"ok": 920, "fraud": 80}}}}
    judged = verdict(read(counted))
    assert "Guessing 'ok', the most frequent answer, has accuracy 0.9200." in caption(read(counted))
    if beaten:
        assert judged.best == "rope"
        return
    best = max(finals, key=finals.get)
    assert judged.sentence.startswith(
        f"No model beats guessing: always answering 'ok' has accuracy 0.9200, {best}, the best one, "
    )
    assert judged.sentence.endswith("Nobody is ranked.")
    assert (judged.best, judged.ties) == (None, ())


@pytest.mark.parametrize(("task", "metric"), [("classification", "accuracy"), ("masked-lm", "perplexity")])
def test_equal_means_of_too_few_seeds_are_called_equal(task, metric):
    results = example_results({"none": 1.5, "rope": 1.5, "tupe-r": 1.5, "t5": 1.5}, seeds=1, task=task)
    for row in results["rows"]:
        row[metric] = 1.5 if row["arm"] != "t5" else {"accuracy": 1.0, "perplexity": 2.0}[metric]
    results["summary"] = summarised(results["rows"])
    judged = verdict(read(results))
    assert judged.sentence.startswith("none, rope and tupe-r share the ")
    assert "is best" not in judged.sentence
    assert judged.status == "Pilot: 1 seed; a test needs 3: --seeds 3."


@pytest.mark.parametrize("seeds", [1, 2])
def test_too_few_seeds_give_no_claim(seeds):
    judged = verdict(read(example_results({"rope": 40.0, "tupe-r": 30.0}, seeds=seeds)))
    assert judged.ties == ("rope",)
    s = "s" * (seeds > 1)
    assert judged.status == f"Pilot: {seeds} seed{s}; a test needs 3: --seeds 3."
    assert "too few: a test needs 3" in judged.evidence
    assert "no spread to judge by" in judged.evidence
    assert "±" not in judged.sentence


def test_more_is_better_for_accuracy():
    results = example_results({"rope": 0.7, "tupe-r": 0.8}, task="classification")
    assert [entry.arm for entry in ranked(read(results))] == ["tupe-r", "rope"]
    assert re.search(r"is best: accuracy 0\.80\d*, 0\.10 above rope\.$", verdict(read(results)).sentence)


SEEDS = {"bert-a": [0.50, 0.52, 0.51, 0.49, 0.10], "tupe-a": [0.61, 0.60, 0.62, 0.59, 0.53]}


def in_medians(seeds=SEEDS, **changes):
    """Results of a grid: the headline is a median on the validation split."""
    results = example_results({arm: 0.5 for arm in seeds}, task="classification", seeds=5)
    for row in results["rows"]:
        row["matthews_correlation"] = seeds[row["arm"]][row["seed"]]
    results["summary"] = summarised(results["rows"])
    return results | {"metric": "matthews_correlation", "split": "validation", "statistic": "median"} | changes


def test_medians_are_described_by_the_range_of_the_seeds():
    judged = verdict(read(in_medians()))
    assert "highest median validation Matthews correlation, 0.6000" in judged.sentence
    assert "tupe-a 0.6000 (0.5300 to 0.6200), bert-a 0.5000 (0.1000 to 0.5200)" in judged.evidence
    assert "not significantly above bert-a" in verdict(read(in_medians(statistic="mean"))).sentence


def test_arms_are_ranked_by_the_median_where_the_mean_says_otherwise():
    seeds = {"steady": [0.5, 0.5, 0.5, 0.5, 0.5], "lucky": [0.6, 0.6, 0.6, 0.0, 0.0]}
    assert [entry.arm for entry in ranked(read(in_medians(seeds)))] == ["lucky", "steady"]
    assert [entry.arm for entry in ranked(read(in_medians(seeds, statistic="mean")))] == ["steady", "lucky"]


@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric not in ("perplexity", "accuracy")])
def test_every_metric_can_be_the_headline(metric):
    results = in_medians()
    for row in results["rows"]:
        row[metric] = row["matthews_correlation"]
    results |= {"summary": summarised(results["rows"]), "metric": metric, "statistic": "mean"}
    place, mean = ("highest", "0.59") if METRICS[metric].higher_is_better else ("lowest", "0.42")
    assert f"{place} mean validation {METRICS[metric].name}, {mean}" in verdict(read(results)).sentence
    assert quality_of(read(results)).meaning.format(split="validation") in caption(read(results))


def test_the_headline_is_the_recipes_metric_or_the_tasks():
    assert metric_of("classification", "f1") == "f1"
    assert metric_of("classification", "loss") == "accuracy"
    assert metric_of("regression", "loss") == "pearson"
    assert metric_of("masked-lm", "loss") == "perplexity"


def test_an_unfinished_comparison_says_so():
    results = example_results({"rope": 40.0, "tupe-r": 30.0})
    results["complete"], results["planned"]["runs"] = False, 10
    assert "Only 6 of 10 runs have finished" in verdict(read(results)).status


def test_nothing_is_claimed_before_all_runs_have_ended():
    results = example_results({"rope": 40.0, "tupe-r": 30.0}, seeds=6)
    assert "p = 0.00" in verdict(read(results)).evidence
    whole = compared(results)
    unfinished = {**results, "complete": False, "waiting": 12, "planned": {**results["planned"], "runs": 24}}
    for partial in (unfinished, unfinished | whole):
        assert compared(partial)["comparisons"] == []
        judged = verdict(read(partial))
        assert re.fullmatch(r"tupe-r so far has the lowest mean .*, 30\.\d+: 25% below rope\.", judged.sentence)
        assert judged.status == "Only 12 of 24 runs have finished; nothing is tested before all have."
        assert judged.ties == ("rope",)
    # a grid whose other rates are not trained yet
    grid = {**results, "complete": False, "waiting": 3}
    assert verdict(read(grid)).status == "Not every run has finished; nothing is tested before all have."
    # every run has ended
    failed = [{"arm": "rope", "seed": seed, "stage": "seeds", "reason": "nan"} for seed in range(6, 18)]
    assert len(compared({**unfinished, "waiting": 0, "failed": failed})["comparisons"]) == 1


def test_nothing_finished_yet():
    results = example_results()
    results["rows"], results["summary"] = [], []
    assert verdict(read(results)).sentence == "No run has finished yet."


@pytest.mark.parametrize("lacking", [{"comparisons": []}, {"significance": {}}, {"significance": {"level": 0.05}}])
def test_a_verdict_computes_what_a_file_does_not_hold(lacking):
    results = example_results({"none": 90.0, "rope": 40.0}, seeds=6)
    results |= compared(results)
    assert verdict(read({**results, **lacking})) == verdict(read(results))
    assert " 55% below none" in verdict(read(results)).sentence


def test_trainings_that_no_mean_holds_are_named():
    results = example_results({"none": 90.0, "rope": 40.0}, seeds=7)
    whole = compared(results)["significance"]["sentence"]
    assert "not a number" not in whole
    next(row for row in results["rows"] if row["arm"] == "rope")["perplexity"] = None
    said = compared(results)["significance"]["sentence"]
    assert said.endswith(
        "Trainings whose masked-token perplexity is not a number, as of a loss that diverged, are in no mean: "
        "rope (1 of 7). A lost run counts as the worst score of any run; on new texts no model is called better than "
        "one that lost a smaller share of its runs."
    )


def test_a_pilot_does_not_call_a_model_best_that_lost_more_runs():
    results = example_results({"a": 30.0, "b": 40.0}, seeds=4)
    results["rows"] = [row for row in results["rows"] if row["arm"] == "b" or row["seed"] < 2]
    results["summary"] = summarised(results["rows"])
    results["failed"] = [{"arm": "a", "seed": seed, "stage": "seeds", "reason": "diverged"} for seed in (2, 3)]
    sentence = verdict(read(results)).sentence
    assert sentence.startswith("Of the runs that did not fail or diverge (a lost 2 of 4), a has the lowest mean ")
    assert "best" not in sentence


def test_the_first_sentence_says_that_runs_were_lost():
    results = example_results({"rope": 40.0, "t5": 30.0}, seeds=12)
    results["failed"] = [{"arm": "t5", "seed": seed, "stage": "seeds", "reason": "nan"} for seed in range(10)]
    results["rows"] = [row for row in results["rows"] if row["arm"] != "t5" or row["seed"] > 9]
    results |= {"summary": summarised(results["rows"]), "complete": False}
    judged = verdict(read(results))
    assert judged.sentence.startswith(
        "Of the runs that did not fail or diverge (t5 lost 10 of 12), t5 has the lowest mean masked-token perplexity"
    )
    assert "not significantly below rope (40.02)" in judged.sentence
    assert judged.ties == ("rope",)
    assert "A lost run counts as the worst" in judged.evidence


def test_failed_runs_are_named():
    results = example_results({"none": 90.0, "rope": 40.0}, seeds=3)
    lost = [row for row in results["rows"] if row["arm"] == "rope" and row["seed"] == 2]
    results["rows"] = [row for row in results["rows"] if row not in lost]
    results |= {"complete": False, "waiting": 1, "summary": summarised(results["rows"])}
    assert verdict(read(results)).status.endswith("Only 5 of 6 runs have finished; nothing is tested before all have.")
    results["failed"] = [{"arm": "rope", "seed": 2, "stage": "seeds", "reason": "the loss is not a number"}]
    results["waiting"] = 0
    assert verdict(read(results)).status.endswith(
        "Only 5 of 6 runs have finished. Failed, and so in no mean: rope (1)."
    )


def test_identical_and_nothing_are_said_of_what_there_is():
    results = example_results({"a": 40.0, "b": 40.0}, seeds=3)
    twin = next(row for row in results["rows"] if row["arm"] == "a")
    results["rows"] = [row for row in results["rows"] if row["arm"] == "a"] + [{**twin, "arm": "b"}]
    results["summary"] = summarised(results["rows"])
    assert ": identical to b on every common seed." in verdict(read(results)).sentence
    for row in results["rows"]:
        row["perplexity"] = None
    results["summary"] = summarised(results["rows"])
    assert verdict(read(results)).sentence == "No run gave a masked-token perplexity that is a number."
