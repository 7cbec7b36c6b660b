"""Claims on new texts, and retrained and on new texts; each against scipy or by hand."""

import numpy as np
import pytest
from comparison_example import read
from scipy import stats
from test_significance import results_of

from wordorder.comparison.results_file import Results, parse_results
from wordorder.comparison.statistics.claims import Estimate, on_new_texts, retrained_on_new_texts
from wordorder.comparison.statistics.significance import between, compare_arms
from wordorder.errors import BadInput, RunFailed
from wordorder.training.runs.unit_scores import UnitScores


def flipped(differences, sizes=None, confidence=0.95):
    """The test of a single arm against one of zeros."""
    differences = np.array(differences, dtype=float)
    goodness = {"a": differences[None], "b": np.zeros((1, len(differences)))}
    sizes = np.ones(len(differences)) if sizes is None else np.array(sizes, dtype=float)
    return on_new_texts(goodness, sizes, [("a", "b")], confidence)["a", "b"]


@pytest.mark.parametrize("shift", [0.0, 0.4, 0.8])
def test_flips_of_units_are_the_exact_test_but_for_sampling(shift):
    differences = np.random.default_rng(3).normal(size=12) + shift
    exact = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert flipped(differences).p == pytest.approx(exact, abs=0.03)


def test_the_interval_has_what_the_test_does_not_reject():
    chance, sides = np.random.default_rng(0), set()
    for _ in range(40):
        sizes = chance.integers(1, 9, size=15).astype(float)
        differences = chance.normal(0.6, 1, size=15) * sizes
        found = flipped(differences, sizes)
        assert found.difference == pytest.approx(differences.sum() / sizes.sum())
        assert (found.p <= 0.05) == (found.low > 0 or found.high < 0)
        assert found.low < found.difference < found.high
        moved = flipped(differences - found.low * 0.999 * sizes, sizes)
        assert moved.p > 0.05 - 0.01
        sides.add(found.p <= 0.05)
    assert sides == {True, False}


def test_units_without_a_difference_claim_nothing():
    assert flipped(np.zeros(50)).p == 1
    assert flipped([1.0] * 4 + [0.0] * 500).p > 0.05  # four sentences are no evidence, however many are alike


def test_the_seeds_of_an_arm_are_averaged_on_each_unit():
    chance = np.random.default_rng(0)
    several, other = chance.normal(0.3, 1, size=(3, 30)), chance.normal(size=(2, 30))
    both = on_new_texts({"a": several, "b": other}, np.ones(30), [("a", "b")], 0.95)["a", "b"]
    once = flipped(several.mean(axis=0) - other.mean(axis=0))
    assert (both.p, both.difference, both.low) == pytest.approx((once.p, once.difference, once.low))


def test_crossed_effects_by_hand():
    """The variance of seeds, of units, and of what is neither, one number after another."""
    chance = np.random.default_rng(1)
    one, other = (chance.normal(size=(3, 1)) + chance.normal(size=(3, 7)) for _ in range(2))
    found = retrained_on_new_texts(one, other, np.ones(7))
    differences = [one[:, unit].mean() - other[:, unit].mean() for unit in range(7)]
    of_seeds = [np.var([own[seed].mean() for seed in range(3)], ddof=1) / 3 for own in (one, other)]
    # the jackknife of a mean of equal units is the usual variance of the mean
    of_units = np.var(differences, ddof=1) / 7 * 7 / 6
    neither = [
        sum(
            (own[seed, unit] - own[:, unit].mean() - own[seed].mean() + own.mean()) ** 2
            for seed in range(3)
            for unit in range(7)
        )
        / (2 * 3 * 49)
        for own in (one, other)
    ]
    assert found.difference == pytest.approx(np.mean(differences))
    assert found.error**2 == pytest.approx(max(of_units + sum(of_seeds) - sum(neither), of_units, sum(of_seeds)))


def test_many_units_leave_the_variance_of_the_seeds():
    chance = np.random.default_rng(2)
    one, other = (chance.normal(size=(4, 1)) + 1e-3 * chance.normal(size=(4, 5000)) for _ in range(2))
    found = retrained_on_new_texts(one, other, np.ones(5000))
    of_seeds = stats.ttest_ind(one.mean(axis=1), other.mean(axis=1), equal_var=False)
    assert found.p == pytest.approx(of_seeds.pvalue, rel=1e-3)
    assert found.interval(0.95) == pytest.approx(tuple(of_seeds.confidence_interval(0.95)), rel=1e-3)


def test_a_unit_of_twice_the_size_counts_twice():
    chance = np.random.default_rng(2)
    values = chance.normal(size=(2, 3, 6))
    sizes = np.array([1.0, 2, 1, 4, 1, 3])
    found = retrained_on_new_texts(*(values * sizes), sizes)
    assert found.difference == pytest.approx(((values[0] - values[1]).mean(axis=0) * sizes).sum() / 12)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
def test_levels_of_both_hold(seeds):
    """Within the 99% band of 5% for 1,000 sets, above; being cautious is no mistake."""
    chance, wrong = np.random.default_rng(seeds), np.zeros(2)
    for _ in range(1000):
        sizes = chance.lognormal(0, 0.5, size=40)
        of_units = chance.normal(size=(2, 1, 40))
        here = chance.normal(size=(2, seeds, 1)) * 0.2 + chance.normal(size=(2, seeds, 40)) * 0.5
        one, other = (here + of_units) * sizes
        wrong[0] += retrained_on_new_texts(one, other, sizes).p <= 0.05
        wrong[1] += flipped((of_units[0, 0] - of_units[1, 0]) * sizes, sizes).p <= 0.05
    assert (wrong <= 69).all()
    assert (wrong >= 10).all()


def kept_of(losses, documents=None, **changes):
    """Arm -> seed -> scores of units, of losses (seeds, units)."""

    def scores(own):
        counts = np.ones(len(own), np.int64)
        owners = np.arange(len(own)) if documents is None else np.array(documents)
        fields = {"losses": own, "counts": counts, "right": None, "documents": owners, "data": "x"}
        return UnitScores(**fields | changes)

    return {arm: {seed: scores(own) for seed, own in enumerate(values)} for arm, values in losses.items()}


def example(units=40, seeds=3, gap=0.5):
    """Two arms, three seeds, perplexities and losses that belong together; "b" is better."""
    chance = np.random.default_rng(0)
    shared = chance.normal(3, 0.5, size=units)
    losses = {
        arm: shared + 0.02 * chance.normal(size=(seeds, 1)) + 0.2 * chance.normal(size=(seeds, units)) - ahead
        for arm, ahead in (("a", 0.0), ("b", gap))
    }
    scores = {arm: np.exp(own.mean(axis=1)).tolist() for arm, own in losses.items()}
    return losses, read(results_of(scores, metric="perplexity"))


def test_three_seeds_give_three_claims():
    losses, results = example()
    (entry,) = compare_arms(results, kept_of(losses)).comparisons
    assert entry.outcome == "better"
    for claim in (entry.new_texts, entry.retrained_new_texts):
        assert claim.outcome == "better"
        assert claim.difference == pytest.approx(entry.difference)
        assert claim.low < 0.5 < claim.high
        assert (claim.seeds, claim.measure) == (3, "log perplexity")
    assert (entry.new_texts.unit, entry.new_texts.units) == ("example", 40)
    turned = between([entry], "a", "b")
    assert turned.new_texts.outcome == "worse"
    assert (turned.outcome, turned.low, turned.high) == ("worse", -entry.high, -entry.low)
    again = parse_results(results.having(comparisons=(entry,)).as_json())
    assert isinstance(again, Results)
    assert again.comparisons == (entry,)


def test_one_seed_gives_a_claim_about_new_texts_alone():
    losses, results = example(seeds=1)
    (entry,) = compare_arms(results, kept_of(losses)).comparisons
    assert entry.new_texts.outcome == "better"
    assert (entry.outcome, entry.retrained_new_texts) == ("not tested", None)


def test_twenty_documents_are_tested_and_fewer_are_not():
    losses, results = example()
    (entry,) = compare_arms(results, kept_of(losses, np.arange(40) // 2)).comparisons
    assert (entry.new_texts.unit, entry.new_texts.units) == ("document", 20)
    assert entry.new_texts.difference == pytest.approx(entry.difference)
    (entry,) = compare_arms(results, kept_of(losses, np.arange(40) // 3)).comparisons
    assert (entry.new_texts.unit, entry.new_texts.units) == ("segment", 40)


def test_scores_of_other_texts_are_refused():
    losses, results = example()
    kept = kept_of(losses)
    kept["b"] = kept_of(losses, data="y")["b"]
    with pytest.raises(RunFailed, match="of b, seed 0, is of other texts than that of a, seed 0"):
        compare_arms(results, kept)


def test_arms_without_kept_scores_are_compared_over_seeds_alone():
    losses, results = example()
    kept = kept_of(losses)
    del kept["a"]
    (entry,) = compare_arms(results, kept).comparisons
    assert entry.new_texts is None
    assert entry.outcome == "better"


def test_accuracies_are_compared_by_what_is_right():
    chance = np.random.default_rng(0)
    right = {"a": chance.random((3, 200)) < 0.5, "b": chance.random((3, 200)) < 0.8}
    results = read(results_of({arm: own.mean(axis=1).tolist() for arm, own in right.items()}))
    kept = kept_of({arm: np.zeros((3, 200)) for arm in right})
    for arm, own in kept.items():
        for seed, scores in own.items():
            own[seed] = UnitScores(
                losses=scores.losses, counts=scores.counts, right=right[arm][seed].astype(np.int64),
                documents=scores.documents, data="x",
            )  # fmt: skip
    (entry,) = compare_arms(results, kept).comparisons
    assert (entry.new_texts.outcome, entry.new_texts.measure) == ("better", "accuracy")
    assert entry.new_texts.difference == pytest.approx(entry.difference)


def test_a_margin_that_is_none_is_refused():
    wrong = results_of({"a": [1.0], "b": [2.0]})
    wrong["recipe"]["compare"]["equivalence"] = -0.5
    with pytest.raises(BadInput, match=r"recipe\.compare\.equivalence: should be greater than 0, got -0\.5"):
        read(wrong)


def test_an_arm_that_lost_runs_is_not_better_by_any_test():
    losses, results = example(seeds=4)
    lost = results.as_json()
    lost["rows"] = [row for row in lost["rows"] if (row["arm"], row["seed"]) != ("b", 3)]
    lost["failed"] = [{"arm": "b", "seed": 3, "reason": "diverged"}]
    kept = kept_of(losses)
    del kept["b"][3]
    (entry,) = compare_arms(read(lost), kept).comparisons
    assert entry.outcome == "not distinguishable"
    for claim in (entry.new_texts, entry.retrained_new_texts):
        assert (claim.outcome, claim.lost) == ("no claim", "b lost 1 of 4 runs")


def test_folds_and_medians_have_no_claim_on_new_texts():
    losses, results = example()
    medians = results.having(statistic="median")
    assert compare_arms(medians, kept_of(losses)).comparisons[0].new_texts is None
    folds = results.as_json()
    folds["planned"]["folds"] = [0, 1, 2]
    for row in folds["rows"]:
        row |= {"fold": row["seed"], "seed": 0}
    (entry,) = compare_arms(read(folds), kept_of(losses)).comparisons
    assert entry.new_texts is entry.retrained_new_texts is None


def test_an_estimate_needs_no_seed_to_tell_its_p():
    found = Estimate(difference=2.0, error=1.0, degrees=10.0)
    assert found.p == pytest.approx(2 * stats.t.sf(2, 10))
