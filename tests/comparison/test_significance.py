"""What is claimed of two arms, and on what grounds; the test itself is in test_seeds.py."""

import math

import numpy as np
import pytest
from comparison_example import compared, example_results, read, summarised
from scipy import stats

from wordorder.comparison.report.verdict import verdict
from wordorder.comparison.results_file import Row
from wordorder.comparison.statistics.significance import are_identical, between, lost_runs


def results_of(scores, *, metric="accuracy", seeds=None, baseline="", **more):
    """A results file of arms with these scores, by arm; ``seeds``: arm -> its seeds, 0, 1, .. unless given."""
    rows = [
        {"arm": arm, "seed": seed, metric: value, "curve": []}
        for arm, values in scores.items()
        for seed, value in zip((seeds or {}).get(arm, range(len(values))), values, strict=True)
    ]
    tasks = {"accuracy": "classification", "perplexity": "causal-lm"}
    return {
        "task": tasks[metric],
        "metric": metric,
        "rows": rows,
        "arms": [{"name": arm} for arm in scores],
        "planned": {"seeds": sorted({row["seed"] for row in rows})},
        "recipe": {"compare": {"baseline": baseline}},
        **({"baseline": baseline} if baseline else {}),
        **more,
    }


def spaced(arms, seeds, step=1.0):
    """Arms far apart: the later the better."""
    chance = np.random.default_rng(0)
    return {f"arm{n}": (n * step + 0.01 * chance.normal(size=seeds)).tolist() for n in range(arms)}


def outcomes(results):
    return [entry["outcome"] for entry in compared(results)["comparisons"]]


def test_a_comparison_has_what_the_results_file_promises():
    a, b = [0.5, 0.6, 0.5, 0.6, 0.5, 0.6], [0.6, 0.8, 0.6, 0.8, 0.6, 0.8]
    found = compared(results_of({"a": a, "b": b}))
    (entry,) = found["comparisons"]
    welch = stats.ttest_ind(b, a, equal_var=False)
    factor = 1 + 0.6 / 6
    means = lambda x, y, axis=-1: np.mean(x, axis=axis) - np.mean(y, axis=axis)  # noqa: E731
    permuted = stats.permutation_test((b, a), means, permutation_type="independent", n_resamples=np.inf).pvalue
    half = stats.t.isf(0.025 / factor, welch.df) * math.sqrt(np.var(a, ddof=1) / 6 + np.var(b, ddof=1) / 6)
    assert entry == {
        "arm": "b",
        "against": "a",
        "n": 6,
        "scale": "difference",
        "test": "the permutation test",
        "difference": pytest.approx(0.15),
        "low": pytest.approx(0.15 - half),
        "high": pytest.approx(0.15 + half),
        "p": pytest.approx(max(permuted, factor * welch.pvalue)),
        "p_adjusted": pytest.approx(max(permuted, factor * welch.pvalue)),
        "outcome": "better",
        "margin": 0.01,
        "p_same": pytest.approx(
            min(1, factor * stats.ttest_ind(b, np.add(a, 0.01), equal_var=False, alternative="less").pvalue)
        ),
    }
    said = found["significance"]
    assert (said["seeds"], said["seeds_needed"], said["level"]) == (6, 3, 0.05)
    assert said["sentence"] == "Significant: at the 5% level, by the permutation test over 6 seeds."


def bimodal(arms, seeds, chance):
    """Equal arms whose runs either learn or do not."""
    values = 0.1 + 0.8 * (chance.random((arms, seeds)) < 0.5) + 0.01 * chance.normal(size=(arms, seeds))
    return {f"arm{n}": own.tolist() for n, own in enumerate(values)}


def test_three_runs_that_learn_or_do_not_are_no_difference():
    """Welch's test with Holm's correction claims in 41% of such comparisons."""
    chance, wrong = np.random.default_rng(0), 0
    for _ in range(100):
        results = results_of(bimodal(8, 3, chance))
        results["summary"] = summarised(results["rows"])
        judged = verdict(read(results))
        wrong += len(judged.ties) < 7 or "Significant" in judged.status
    assert wrong <= stats.binom.ppf(0.999, 100, 0.05)


def test_why_nothing_is_claimed_is_said_where_other_arms_stop_it():
    scores = {"a": [0.51, 0.52, 0.53], "b": [0.71, 0.72, 0.73], "wild": [0.1, 0.9, 0.5], "c": [0.51, 0.53, 0.52]}
    found = {(entry["arm"], entry["against"]): entry for entry in compared(results_of(scores))["comparisons"]}
    assert found["b", "a"]["outcome"] == "not distinguishable"
    assert "runs of wild differ by 0.8" in found["b", "a"]["why"]
    assert "with 7 seeds" in found["b", "a"]["why"]
    assert "why" not in found["wild", "a"]


def test_a_lost_run_is_the_worst_of_all():
    scores = {"a": [0.5, 0.51, 0.52, 0.53, None], "b": [0.61, 0.6, 0.63, 0.65, 0.62], "c": [0.2, 0.2, 0.3, 0.2, 0.3]}
    found = compared(results_of(scores))
    (entry,) = [entry for entry in found["comparisons"] if (entry["arm"], entry["against"]) == ("b", "a")]
    worst = compared(results_of(scores | {"a": [0.5, 0.51, 0.52, 0.53, 0.2]}))
    (expected,) = [entry for entry in worst["comparisons"] if (entry["arm"], entry["against"]) == ("b", "a")]
    assert entry == expected
    assert "A lost run counts as the worst score of any run" in found["significance"]["sentence"]
    assert compared(results_of({"a": [None], "b": [0.5]}))["comparisons"] == []


def failed(arm, seeds):
    return [{"arm": arm, "seed": seed, "stage": "seeds", "reason": "the loss became nan"} for seed in seeds]


@pytest.mark.parametrize("way", ["failed", "not a number"])
def test_an_arm_that_lost_most_of_its_runs_is_not_called_better_by_those_that_are_left(way):
    results = results_of(spaced(2, 12))
    assert outcomes(results) == ["better"]
    for row in list(results["rows"]):
        if row["arm"] == "arm1" and row["seed"] < 9:
            row["accuracy"] = None
            if way == "failed":
                results["rows"].remove(row)
    if way == "failed":
        results["failed"] = failed("arm1", range(9))
    assert outcomes(results) == ["not distinguishable"]
    assert lost_runs(read(results)) == {"arm1": (9, 12)}


def test_two_seeds_are_not_tested_and_three_are():
    for seeds, outcome in ((2, "not tested"), (3, "better")):
        found = compared(results_of(spaced(3, seeds)))
        assert {entry["outcome"] for entry in found["comparisons"]} == {outcome}
    few = compared(results_of(spaced(3, 2)))
    assert "2 seeds are too few: a test needs 3" in few["significance"]["sentence"]
    assert "p" not in few["comparisons"][0]


def test_a_level_of_one_percent_needs_five_seeds():
    results = results_of(spaced(2, 4))
    results["recipe"]["compare"]["confidence"] = 0.99
    found = compared(results)
    assert (found["comparisons"][0]["outcome"], found["significance"]["seeds_needed"]) == ("not tested", 5)
    results = results_of(spaced(2, 5))
    results["recipe"]["compare"]["confidence"] = 0.99
    assert compared(results)["comparisons"][0]["outcome"] == "better"


def test_against_a_baseline_pairs_are_those_with_it():
    results = results_of(spaced(8, 6), baseline="arm3")
    found = compared(results)
    assert [(entry["arm"], entry["against"]) for entry in found["comparisons"]] == [
        (f"arm{n}", "arm3") for n in (0, 1, 2, 4, 5, 6, 7)
    ]
    assert outcomes(results) == ["worse"] * 3 + ["better"] * 4
    assert found["significance"]["family"] == "every other arm against the baseline arm3"
    assert found["significance"]["correction"] == "Holm's method"
    assert compared(results_of(spaced(8, 6)))["significance"]["correction"] == "Shaffer's method"


def test_arms_that_are_close_are_called_the_same():
    close = {"a": [10.0, 10.001, 9.999], "b": [10.002, 9.998, 10.0], "c": [10.0, 10.5, 9.5]}
    found = compared(results_of({name: close[name] for name in "ab"}, metric="perplexity"))
    assert [entry["outcome"] for entry in found["comparisons"]] == ["same"]
    assert found["comparisons"][0]["margin"] == pytest.approx(math.log(1.01))
    assert outcomes(results_of({name: close[name] for name in "ac"}, metric="perplexity")) == ["not distinguishable"]


def test_perplexities_are_compared_by_their_ratio_and_lower_is_better():
    a, b = [30.0, 33.0, 36.0, 31.0, 29.0, 34.0], [20.0, 22.0, 24.0, 21.0, 19.0, 23.0]
    (entry,) = compared(results_of({"a": a, "b": b}, metric="perplexity"))["comparisons"]
    assert entry["scale"] == "log"
    assert entry["difference"] == pytest.approx(np.mean(np.log(a) - np.log(b)))
    assert entry["outcome"] == "better"


def test_an_arm_may_be_called_better_than_one_that_lost_runs():
    scores = spaced(2, 8)
    scores["arm0"][:2] = [None, math.nan]
    assert outcomes(results_of(scores)) == ["better"]
    # trials of learning rates that diverged are an answer, and no runs of the comparison
    results = results_of(spaced(2, 8), failed=[{"arm": "arm1", "seed": 0, "stage": "tuning", "reason": "nan"}])
    assert (lost_runs(read(results)), outcomes(results)) == ({}, ["better"])


def test_one_network_under_two_names_is_identical_with_any_number_of_seeds():
    for seeds in (1, 3, 8):
        results = example_results({"a": 30.0, "b": 40.0}, seeds=seeds)
        results["rows"] += [row | {"arm": "a again", "tokens_per_second": 1.0} for row in results["rows"][::2]]
        found = {(e["arm"], e["against"]): e for e in compared(results)["comparisons"]}
        assert found["a again", "a"]["outcome"] == "identical"
        assert found["a again", "a"]["difference"] == 0
        assert found["b", "a"]["outcome"] != "identical"


def test_equal_accuracies_alone_are_not_one_network():
    row = Row(arm="a", seed=0, accuracy=0.5, loss=1.0, curve=[[1, 2.0]])
    one = {(None, 0): row}
    assert are_identical(one, {(None, 0): row.having(arm="b"), (None, 1): Row(arm="b", seed=1)})
    for name, value in (("loss", 1.0 + 1e-15), ("curve", [[1, 2.5]]), ("parameters", 3), ("accuracy", 0.6)):
        assert not are_identical(one, {(None, 0): row.having(**{name: value})})
    assert not are_identical(one, {(None, 1): one[None, 0]})
    same = results_of({"a": [0.5] * 8, "b": [0.5] * 8})
    for row in same["rows"]:
        row["loss"] = 1.0 + (row["arm"] == "b")
    assert outcomes(same) == ["not distinguishable"]


def test_the_seeds_of_one_fold_count_once():
    results = results_of({"a": [0.1] * 12, "b": [0.2] * 12})
    for row in results["rows"]:
        row |= {"fold": row["seed"] // 2, "seed": row["seed"] % 2}
        ahead = 0.05 * row["seed"] + 0.001 * (-1) ** row["fold"]
        row["accuracy"] += 0.01 * row["fold"] + ahead * (row["arm"] == "b")
    results["planned"] |= {"folds": list(range(6)), "seeds": [0, 1]}
    found = compared(results)
    assert found["comparisons"][0]["n"] == 6
    assert found["comparisons"][0]["difference"] == pytest.approx(0.125)
    assert found["comparisons"][0]["outcome"] == "better"
    assert "over 6 folds" in found["significance"]["sentence"]
    assert "Folds share training texts" in found["significance"]["sentence"]
    results["recipe"]["data"] = {"fold_kind": "independent"}
    assert "share training texts" not in compared(results)["significance"]["sentence"]


def test_choosing_on_the_scored_texts_is_said():
    assert "need not be found again" in compared(results_of(spaced(2, 6), optimistic=True))["significance"]["sentence"]
    assert "found again" not in compared(results_of(spaced(2, 6)))["significance"]["sentence"]


def test_a_comparison_can_be_read_from_either_side():
    comparisons = read(compared(results_of(spaced(3, 6)))).comparisons
    ahead, behind = (between(comparisons, *pair) for pair in (("arm1", "arm0"), ("arm0", "arm1")))
    assert (ahead.outcome, behind.outcome) == ("better", "worse")
    assert (behind.difference, behind.low, behind.high) == (-ahead.difference, -ahead.high, -ahead.low)
    assert (behind.p, behind.arm, behind.against) == (ahead.p, "arm0", "arm1")
    assert between(comparisons, "arm0", "other") is None


def test_nothing_finished_gives_nothing_to_compare():
    found = compared(results_of({}))
    assert (found["comparisons"], found["significance"]["sentence"], found["significance"]["seeds"]) == ([], "", 0)
