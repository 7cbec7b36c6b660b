"""What is claimed of two arms, and on what grounds; the tests themselves are in test_exact_tests.py."""

import math

import numpy as np
import pytest
from comparison_example import compared, example_results, read
from scipy import stats

from wordorder.comparison.report.differences import Unit, in_short
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
    found = compared(results_of({"a": [0.5, 0.6, 0.5, 0.6, 0.5, 0.6], "b": [0.6, 0.8, 0.6, 0.8, 0.6, 0.8]}))
    (entry,) = found["comparisons"]
    a, b = np.array([0.5, 0.6] * 3), np.array([0.6, 0.8] * 3)
    welch = stats.ttest_ind(b, a, equal_var=False)
    assert entry == {
        "arm": "b",
        "against": "a",
        "n": 6,
        "paired": True,
        "scale": "difference",
        "difference": pytest.approx(0.15),
        "low": pytest.approx(0.1),
        "high": pytest.approx(0.2),
        "p": 2 / 64,
        "p_adjusted": 2 / 64,
        # mean over sample standard deviation, times Hedges' factor 1 - 3 / (4 * 5 - 1), up to its approximation
        "effect": pytest.approx(0.15 / 0.054772 * (1 - 3 / 19), rel=2e-3),
        "outcome": "better",
        "retrained": {
            "method": "Welch's test",
            "measure": "accuracy",
            "seeds": 6,
            "difference": pytest.approx(0.15),
            "low": pytest.approx(welch.confidence_interval().low),
            "high": pytest.approx(welch.confidence_interval().high),
            "p": pytest.approx(welch.pvalue),
            "p_adjusted": pytest.approx(welch.pvalue),
            "outcome": "better",
            "margin": 0.01,
            "p_same": pytest.approx(stats.ttest_ind(b, a + 0.01, equal_var=False, alternative="less").pvalue),
            "same": False,
        },
    }
    said = found["significance"]
    assert (said["seeds"], said["seeds_needed"], said["level"]) == (6, 6, 0.05)
    assert said["sentence"] == (
        "Significant: at the 5% level, by an exact sign-flip test of accuracy paired by seed. "
        "It needs at least 6 seeds."
    )


def test_perplexities_are_compared_by_their_ratio_and_lower_is_better():
    a, b = [30.0, 33.0, 36.0, 31.0, 29.0, 34.0], [20.0, 22.0, 24.0, 21.0, 19.0, 23.0]
    (entry,) = compared(results_of({"a": a, "b": b}, metric="perplexity"))["comparisons"]
    assert entry["scale"] == "log"
    assert entry["difference"] == pytest.approx(np.mean(np.log(a) - np.log(b)))
    assert entry["outcome"] == "better"


def test_pairing_by_seed_finds_what_two_groups_hide():
    seeds = np.linspace(0.2, 0.8, 8)
    noise = np.array([1, -1, 0.5, -0.5, 0.2, -0.2, 0.1, -0.1]) * 0.004
    results = results_of({"a": seeds.tolist(), "b": (seeds + 0.01 + noise).tolist()})
    assert outcomes(results) == ["better"]
    for row in results["rows"]:
        row["seed"] += 100 * (row["arm"] == "b")
    (entry,) = compared(results)["comparisons"]
    assert (entry["paired"], entry["n"], entry["outcome"]) == (False, 8, "not distinguishable")
    assert "without a seed in common" in compared(results)["significance"]["test"]


def test_without_pairing_four_seeds_are_enough():
    scores = {"a": [0.5, 0.51, 0.52, 0.53], "b": [0.61, 0.6, 0.63, 0.65]}
    results = results_of(scores)
    assert outcomes(results) == ["too few"]
    results["recipe"]["compare"]["pairing"] = "none"
    found = compared(results)
    (entry,) = found["comparisons"]
    expected = stats.permutation_test(
        (scores["b"], scores["a"]), lambda x, y: np.mean(x) - np.mean(y), permutation_type="independent"
    )
    assert (entry["outcome"], entry["paired"], entry["n"]) == ("better", False, 4)
    assert entry["p"] == pytest.approx(expected.pvalue) == pytest.approx(2 / 70)
    assert "exact permutation test of accuracy between arms as independent groups" in found["significance"]["sentence"]
    results = results_of({arm: values[:3] for arm, values in scores.items()})
    results["recipe"]["compare"]["pairing"] = "none"
    assert outcomes(results) == ["too few"]


@pytest.mark.slow
def test_against_a_baseline_sixteen_arms_need_six_seeds():
    found = compared(results_of(spaced(16, 6), baseline="arm0"))
    assert found["significance"]["correction"] == "closed testing"
    assert {entry["outcome"] for entry in found["comparisons"]} == {"better"}


def test_only_seeds_that_both_arms_have_count_as_pairs():
    scores = spaced(2, 8)
    scores["arm1"] = scores["arm1"][:6]
    (entry,) = compared(results_of(scores))["comparisons"]
    assert (entry["paired"], entry["n"], entry["p"]) == (True, 6, 2 / 64)


def test_runs_without_a_partner_count_where_both_arms_have_some():
    results = results_of(spaced(2, 8), seeds={"arm0": range(8), "arm1": range(2, 10)})
    (entry,) = compared(results)["comparisons"]
    assert (entry["paired"], entry["n"], entry["outcome"]) == (True, 8, "better")
    assert entry["p"] == pytest.approx(2 / (64 * 6))


def test_two_arms_of_six_seeds_with_one_in_common_lose_none():
    results = results_of(spaced(2, 6), seeds={"arm0": range(6), "arm1": range(5, 11)})
    (entry,) = compared(results)["comparisons"]
    assert (entry["n"], entry["outcome"]) == (6, "better")
    assert entry["p"] == pytest.approx(2 / (2 * 252))


def test_a_seed_without_a_number_is_the_last_in_rank_and_in_no_mean():
    scores = spaced(2, 7)
    scores["arm0"][3] = None
    scores["arm1"][4] = math.inf
    (entry,) = compared(results_of(scores))["comparisons"]
    assert entry["n"] == 7
    left = [other - one for seed, (one, other) in enumerate(zip(*scores.values(), strict=True)) if seed not in (3, 4)]
    assert entry["difference"] == pytest.approx(np.mean(left))
    ranks = [6.5, -6.5, *range(1, 6)]  # lost on either side: the largest ranks
    expected = stats.permutation_test((ranks,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert entry["p"] == pytest.approx(expected)
    assert compared(results_of({"a": [None], "b": [0.5]}))["comparisons"] == []


def failed(arm, seeds):
    return [{"arm": arm, "seed": seed, "stage": "seeds", "reason": "the loss became nan"} for seed in seeds]


@pytest.mark.parametrize("way", ["failed", "not a number"])
@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_lost_runs_rank_below_all_others(way, statistic):
    chance = np.random.default_rng(0)
    ahead, behind = (place + 0.01 * chance.normal(size=12) for place in (0.8, 0.6))
    results = results_of({"a": ahead.tolist(), "b": behind.tolist()}, statistic=statistic)
    assert outcomes(results) == ["worse"]

    def lose(arm, seeds):
        for row in list(results["rows"]):
            if (row["arm"], row["seed"]) in {(arm, seed) for seed in seeds}:
                row["accuracy"] = None
                if way == "failed":
                    results["rows"].remove(row)
        results["failed"] = [*results.get("failed", []), *(failed(arm, seeds) if way == "failed" else [])]

    lose("a", [0])
    found = compared(results)
    (entry,) = found["comparisons"]
    ranks = [-12.0, *range(1, 12)]  # the lost run first
    expected = stats.permutation_test((ranks,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert (entry["n"], entry["outcome"]) == (12, "worse")
    assert entry["p"] == pytest.approx(expected)
    assert "Exact tests rank a lost run below every other" in found["significance"]["sentence"]
    assert lost_runs(read(results)) == {"a": (1, 12)}
    lose("a", range(1, 6))
    assert outcomes(results) == ["not distinguishable"]
    lose("b", range(6))  # as many, on the same seeds: the runs that are left decide again
    assert outcomes(results) == ["worse"]


def test_an_arm_that_lost_most_of_its_runs_is_not_called_better_by_those_that_are_left():
    scores = spaced(2, 12)
    scores["arm1"][:9] = [None] * 9
    (entry,) = compared(results_of(scores))["comparisons"]
    # by ranks arm1 is worse; the three runs that it has left are better: nothing is claimed
    assert (entry["outcome"], entry["lost"]) == ("no claim", "arm1 lost 9 of 12 runs")
    told = read({"comparisons": [entry]}).comparisons
    assert {between(told, *pair).lost for pair in (("arm0", "arm1"), ("arm1", "arm0"))} == {entry["lost"]}
    assert in_short(told[0], Unit(percent=False)).endswith("not significant: arm1 lost 9 of 12 runs (p = 0.0039)")


def test_lost_runs_of_arms_without_pairs_rank_below_all_others():
    scores = {"a": [0.5, 0.51, 0.52, 0.53, None], "b": [0.61, 0.6, 0.63, 0.65, 0.62]}
    results = results_of(scores)
    results["recipe"]["compare"]["pairing"] = "none"
    (entry,) = compared(results)["comparisons"]
    assert (entry["outcome"], entry["n"], entry["p"]) == ("better", 5, pytest.approx(2 / 252))


def test_a_run_that_was_lost_on_both_sides_counts_for_neither():
    scores = spaced(2, 7)
    scores["arm0"][0] = scores["arm1"][0] = None
    (entry,) = compared(results_of(scores))["comparisons"]
    assert (entry["n"], entry["p"], entry["outcome"]) == (7, 2 / 64, "better")


def test_an_arm_may_be_called_better_than_one_that_lost_runs():
    scores = spaced(2, 8)
    scores["arm0"][:2] = [None, math.nan]
    assert outcomes(results_of(scores)) == ["better"]
    # trials of learning rates that diverged are an answer, and no runs of the comparison
    results = results_of(spaced(2, 8), failed=[{"arm": "arm1", "seed": 0, "stage": "tuning", "reason": "nan"}])
    assert (lost_runs(read(results)), outcomes(results)) == ({}, ["better"])


@pytest.mark.parametrize(("arms", "seeds"), [(2, 6), (3, 6), (4, 7), (7, 7), (8, 8)])
def test_a_claim_is_possible_from_the_stated_number_of_seeds(arms, seeds):
    enough = compared(results_of(spaced(arms, seeds)))
    assert set(outcomes(results_of(spaced(arms, seeds)))) == {"better"}
    assert enough["significance"]["seeds_needed"] == seeds
    few = results_of(spaced(arms, seeds - 1))
    assert set(outcomes(few)) == {"too few"}
    assert compared(few)["significance"]["seeds_needed"] == seeds
    assert f"{seeds - 1} seeds are too few for the exact sign-flip test" in compared(few)["significance"]["sentence"]


def test_three_seeds_never_give_a_claim_at_five_percent():
    found = compared(results_of(spaced(2, 3, step=1e6)))
    assert found["comparisons"][0]["p"] == 0.25
    assert (
        "its p-value cannot be below 0.25, and significant is at the 5% level. It needs at least 6 seeds."
        in found["significance"]["sentence"]
    )


def test_against_a_baseline_six_seeds_are_enough_for_any_number_of_arms():
    results = results_of(spaced(8, 6), baseline="arm3")
    found = compared(results)
    assert [(entry["arm"], entry["against"]) for entry in found["comparisons"]] == [
        (f"arm{n}", "arm3") for n in (0, 1, 2, 4, 5, 6, 7)
    ]
    assert outcomes(results) == ["worse"] * 3 + ["better"] * 4
    assert found["significance"]["family"] == "every other arm against the baseline arm3"
    assert found["significance"]["seeds_needed"] == 6


def test_the_level_is_what_the_recipe_says():
    results = results_of(spaced(2, 6))
    results["recipe"]["compare"]["confidence"] = 0.99
    found = compared(results)
    assert (found["comparisons"][0]["outcome"], found["significance"]["seeds_needed"]) == ("too few", 8)
    assert "at the 1% level" in found["significance"]["sentence"]


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
        row["accuracy"] += 0.01 * row["fold"] + 0.05 * row["seed"] * (row["arm"] == "b")
    results["planned"] |= {"folds": list(range(6)), "seeds": [0, 1]}
    found = compared(results)
    assert found["comparisons"][0]["n"] == 6
    assert found["comparisons"][0]["difference"] == pytest.approx(0.125)
    assert "paired by fold" in found["significance"]["sentence"]
    assert "Folds share training texts" in found["significance"]["sentence"]
    results["recipe"]["data"] = {"fold_kind": "independent"}
    assert "share training texts" not in compared(results)["significance"]["sentence"]


def test_medians_are_tested_by_ranks_which_one_lost_seed_does_not_decide():
    a = [0.50, 0.51, 0.52, 0.53, 0.54, 0.55, 0.56, 0.57]
    b = [value + 0.1 for value in a[:-1]] + [0.5]
    mean = compared(results_of({"a": a, "b": b}))
    ranks = compared(results_of({"a": a, "b": b}, statistic="median"))
    assert "signed-rank" in ranks["significance"]["test"]
    assert ranks["comparisons"][0]["difference"] == pytest.approx(0.1, abs=1e-9)
    assert mean["comparisons"][0]["difference"] == pytest.approx(0.07875)
    far = [*b[:-1], -5.0]
    (entry,) = compared(results_of({"a": a, "b": far}, statistic="median"))["comparisons"]
    assert entry["difference"] == pytest.approx(0.1, abs=1e-9)


def test_choosing_on_the_scored_texts_is_said():
    assert "need not be found again" in compared(results_of(spaced(2, 6), optimistic=True))["significance"]["sentence"]
    assert "found again" not in compared(results_of(spaced(2, 6)))["significance"]["sentence"]


def test_arms_without_common_seeds_beside_others_fall_back_to_holm():
    results = results_of(spaced(3, 9), seeds={"arm2": range(50, 59)})
    found = compared(results)
    assert found["significance"]["correction"] == "Holm's method"
    assert [entry["paired"] for entry in found["comparisons"]] == [True, False, False]
    assert "are compared as independent groups" in found["significance"]["sentence"]
    assert [entry["p_adjusted"] for entry in found["comparisons"]] == sorted(
        entry["p_adjusted"] for entry in found["comparisons"]
    )[::-1]


def test_a_comparison_can_be_read_from_either_side():
    comparisons = read(compared(results_of(spaced(3, 6)))).comparisons
    ahead, behind = (between(comparisons, *pair) for pair in (("arm1", "arm0"), ("arm0", "arm1")))
    assert (ahead.outcome, behind.outcome) == ("better", "worse")
    assert (behind.difference, behind.low, behind.high, behind.effect) == (
        -ahead.difference,
        -ahead.high,
        -ahead.low,
        -ahead.effect,
    )
    assert (behind.p, behind.arm, behind.against) == (ahead.p, "arm0", "arm1")
    assert between(comparisons, "arm0", "other") is None


def test_a_thousand_results_without_a_difference():
    chance, found = np.random.default_rng(8), 0
    for scores in 0.5 + 0.01 * chance.normal(size=(1000, 2, 6)):
        found += outcomes(results_of({"a": scores[0].tolist(), "b": scores[1].tolist()})) != ["not distinguishable"]
    low, high = stats.binom.interval(0.99, 1000, 2 / 64)  # what the exact test of six pairs attains
    assert low <= found <= high


def test_nothing_finished_gives_nothing_to_compare():
    found = compared(results_of({}))
    assert (found["comparisons"], found["significance"]["sentence"], found["significance"]["seeds"]) == ([], "", 0)


def test_sets_of_arms_are_ranked_on_the_seeds_that_all_of_them_have():
    from wordorder.comparison.statistics.exact_tests import closed_p

    whole = {arm: {seed: place + 0.1 * seed for seed in range(5)} for place, arm in enumerate("abc")}
    pairs = {pair: 0.001 for pair in (("a", "b"), ("a", "c"), ("b", "c"))}
    # on seeds that c lacks, a and b are the other way round: no rank of three says anything of them
    longer = {arm: {**own, **({} if arm == "c" else {5: -own[0], 6: -own[0]})} for arm, own in whole.items()}
    assert closed_p(pairs, longer) == closed_p(pairs, whole)
    assert min(closed_p(pairs, whole).values()) > 0.001


def test_an_arm_that_lost_its_seeds_does_not_take_the_claims_of_others_along():
    results = example_results({"a": 40.0, "b": 60.0, "c": 90.0}, seeds=7)
    whole = compared(results)
    assert whole["significance"]["correction"] == "closed testing"
    results["rows"] = [row for row in results["rows"] if row["arm"] != "c" or row["seed"] < 2]
    found = compared(results)
    assert found["significance"]["correction"] == "Holm's method"
    outcomes = {(entry["arm"], entry["against"]): entry["outcome"] for entry in found["comparisons"]}
    assert outcomes == {("b", "a"): "worse", ("c", "a"): "too few", ("c", "b"): "too few"}
    results["rows"] = [row for row in results["rows"] if row["seed"] < 2]
    # where nobody has more, what to say of the number that it takes is that of closed testing
    assert compared(results)["significance"]["correction"] == "closed testing"
