"""The test of arms over few seeds, against a slow one that is written from its definition."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from wordorder.comparison.statistics.seeds import (
    FLOOR,
    PERMUTATION,
    SIGN_FLIPS,
    compare_folds,
    compare_seeds,
    holm,
    most_equal_pairs,
    permutation_p,
    seeds_to_test,
    seeds_without_floor,
    sign_flip_p,
)

LEVEL = 0.05


def all_pairs(scores):
    return [(one, other) for other, one in combinations(scores, 2)]


def set_partitions(members):
    """Every division of a list into sets."""
    if not members:
        yield []
        return
    first, *rest = members
    for chosen in product([False, True], repeat=len(rest)):
        beside = [m for m, taken in zip(rest, chosen, strict=True) if taken]
        for others in set_partitions([m for m in rest if m not in beside]):
            yield [[first, *beside], *others]


def equal_pairs_slowly(arms):
    """The largest number of equal pairs after so many differences, by going through all divisions of the arms."""
    total = math.comb(arms, 2)
    equal = {sum(math.comb(len(s), 2) for s in sets) for sets in set_partitions(list(range(arms)))}
    return [max(count for count in equal if count <= total - step) for step in range(total)]


def p_slowly(scores, pair, pairs):
    """(estimate, standard error, degrees, factor, p) of one pair, before the correction."""
    x, y = (np.asarray(scores[arm]) for arm in pair)
    nx, ny = len(x), len(y)
    d = x.mean() - y.mean()
    vx, vy = x.var(ddof=1) / nx, y.var(ddof=1) / ny
    se2, df = vx + vy, (vx + vy) ** 2 / (vx**2 / (nx - 1) + vy**2 / (ny - 1))
    factor = 1 + 0.6 / min(nx, ny)
    exact = 2 * len(pairs) / math.comb(nx + ny, nx) <= LEVEL / 4
    if not exact:
        others = [np.asarray(v) for arm, v in scores.items() if arm not in pair]
        others.sort(key=lambda values: values.var(ddof=1))
        pool = [x, y, *(others if min(nx, ny) == 3 else others[:-1])]
        weights = [len(values) - 1 for values in pool]
        variances = [values.var(ddof=1) for values in pool]
        whole = sum(w * v for w, v in zip(weights, variances, strict=True))
        floor = whole / sum(weights) * (1 / nx + 1 / ny)
        if floor > se2 * (1 + 1e-9):
            se2, df = floor, whole**2 / sum(w * v**2 for w, v in zip(weights, variances, strict=True))
    p = min(1, factor * 2 * stats.t.sf(abs(d) / math.sqrt(se2), df))
    if exact:
        pooled, count, splits = [*x, *y], 0, 0
        for first in combinations(range(nx + ny), nx):
            one = [pooled[i] for i in first]
            other = [pooled[i] for i in range(nx + ny) if i not in first]
            splits += 1
            count += abs(np.mean(one) - np.mean(other)) >= abs(d) - 1e-12
        p = max(p, count / splits)
    return d, math.sqrt(se2), df, factor, p


def corrected_slowly(p_values, steps):
    order = sorted(p_values, key=p_values.get)
    return {
        pair: max(min(1, h * p_values[before]) for before, h in zip(order[: n + 1], steps, strict=False))
        for n, pair in enumerate(order)
    }


@pytest.mark.parametrize("family", ["all pairs", "baseline"])
@pytest.mark.parametrize("counts", [(3, 3), (5, 5), (3, 3, 3, 3), (4, 4, 4), (6, 6, 6), (3, 5, 4, 6), (5,) * 5])
def test_a_pair_is_tested_as_its_definition_says(counts, family):
    chance = np.random.default_rng(len(counts))
    for _ in range(5):
        scores = {
            f"arm{n}": (n + chance.lognormal(sigma=1.5) * chance.normal(size=count)).tolist()
            for n, count in enumerate(counts)
        }
        pairs = all_pairs(scores) if family == "all pairs" else [(arm, "arm0") for arm in list(scores)[1:]]
        by_pair = {pair: p_slowly(scores, pair, pairs) for pair in pairs}
        steps = equal_pairs_slowly(len(counts)) if family == "all pairs" else range(len(pairs), 0, -1)
        corrected = corrected_slowly({pair: one[-1] for pair, one in by_pair.items()}, list(steps))
        tests = compare_seeds(scores, pairs, level=LEVEL, margin=0.5)
        same = {}
        for pair, (d, se, df, factor, p) in by_pair.items():
            assert tests[pair].difference == pytest.approx(d)
            assert tests[pair].p == pytest.approx(p, rel=1e-9)
            assert tests[pair].p_adjusted == pytest.approx(corrected[pair], rel=1e-9)
            same[pair] = min(1, factor * stats.t.sf((0.5 - abs(d)) / se, df))
        for pair, p in corrected_slowly(same, list(range(len(pairs), 0, -1))).items():
            assert tests[pair].p_same == pytest.approx(p, rel=1e-9)


def test_the_interval_has_the_level_of_the_step_at_which_its_pair_is_tested():
    scores = {"a": [0.0, 0.1, 0.2], "b": [10.0, 10.1, 10.2], "c": [10.1, 10.2, 10.4], "d": [10.0, 10.3, 10.2]}
    pairs = all_pairs(scores)
    tests = compare_seeds(scores, pairs, level=LEVEL, margin=0.1)
    order = sorted(pairs, key=lambda pair: p_slowly(scores, pair, pairs)[-1])
    claimed = [pair for pair in order if tests[pair].p_adjusted <= LEVEL]
    assert {frozenset(pair) for pair in claimed} == {frozenset(("a", other)) for other in "bcd"}
    for n, pair in enumerate(order):
        h = [6, 3, 3, 3, 2, 1][min(n, len(claimed))]  # all that are not claimed: as the first of them
        d, se, df, factor, _ = p_slowly(scores, pair, pairs)
        half = stats.t.isf(LEVEL / (2 * h * factor), df) * se
        assert (tests[pair].low, tests[pair].high) == pytest.approx((d - half, d + half))


def noise(kind, chance, arms, seeds):
    if kind == "normal":
        return chance.normal(size=(arms, seeds))
    if kind == "spaced":
        return chance.normal(size=(arms, seeds)) + 3 * np.arange(arms)[:, None]
    return 8.0 * (chance.random((arms, seeds)) < 0.5) + 0.3 * chance.normal(size=(arms, seeds))


@pytest.mark.parametrize("kind", ["normal", "spaced", "bimodal"])
@pytest.mark.parametrize(("arms", "seeds"), [(2, 3), (2, 5), (4, 3), (4, 6), (4, 7), (8, 4)])
def test_no_interval_contradicts_its_p_value(kind, arms, seeds):
    chance = np.random.default_rng(3)
    for _ in range(20):
        scores = {str(arm): values.tolist() for arm, values in enumerate(noise(kind, chance, arms, seeds))}
        for test in compare_seeds(scores, all_pairs(scores), level=LEVEL, margin=0.1).values():
            assert test.low <= test.difference <= test.high
            assert (test.p_adjusted <= LEVEL) == (not test.low <= 0 <= test.high), test


def claims(scores):
    return [test for test in compare_seeds(scores, all_pairs(scores), level=LEVEL, margin=0.1).values()
            if test.p_adjusted <= LEVEL]  # fmt: skip


def welch_and_holm(scores):
    first, second = (np.array([scores[pair[side]] for pair in all_pairs(scores)]) for side in (0, 1))
    p_values = stats.ttest_ind(first, second, axis=1, equal_var=False).pvalue
    return min(p_values) * len(p_values) <= LEVEL


@pytest.mark.parametrize("arms", [4, 8])
def test_equal_arms_that_learn_or_do_not_are_not_called_different(arms):
    chance, sets, wrong, by_welch = np.random.default_rng(0), 300, 0, 0
    for _ in range(sets):
        scores = {str(arm): values.tolist() for arm, values in enumerate(noise("bimodal", chance, arms, 3))}
        wrong += bool(claims(scores))
        by_welch += welch_and_holm(scores)
    assert wrong <= stats.binom.ppf(0.999, sets, LEVEL)
    assert by_welch > stats.binom.ppf(0.999, sets, LEVEL)  # what the floor is there for


def test_three_seeds_find_a_difference_of_many_standard_deviations():
    chance, right = np.random.default_rng(1), 0
    for _ in range(50):
        values = chance.normal(size=(4, 3))
        values[0] += 10
        right += len(claims({str(arm): own.tolist() for arm, own in enumerate(values)})) >= 3
    assert right >= 45


def test_the_arm_that_stops_a_claim_is_named():
    scores = {"a": [1.0, 1.1, 1.2], "b": [2.0, 2.1, 2.2], "wild": [0.0, 9.0, 30.0]}
    tests = compare_seeds(scores, all_pairs(scores), level=LEVEL, margin=0.1)
    assert (tests["b", "a"].method, tests["b", "a"].noisiest) == (FLOOR, "wild")
    assert tests["wild", "a"].noisiest is None  # Welch's test alone would not claim it either
    # with four seeds the noisiest arm outside of a pair has no part in its floor
    longer = {arm: [*values, values[0]] for arm, values in scores.items()}
    assert compare_seeds(longer, all_pairs(longer), level=LEVEL, margin=0.1)["b", "a"].p_adjusted <= LEVEL


def test_the_permutation_test_decides_from_the_first_number_of_seeds_that_allows_it():
    assert [seeds_without_floor(math.comb(arms, 2), LEVEL) for arms in (2, 3, 4, 7, 8, 13, 14)] == [
        5, 6, 7, 7, 8, 8, 9
    ]  # fmt: skip
    assert [seeds_without_floor(pairs, LEVEL) for pairs in (1, 2, 5, 6, 21)] == [5, 6, 6, 7, 7]
    # two arms whose means differ by a run that went wrong: t would deny, and the ranks of runs decide nothing
    apart = {"a": [1.0, 1.1, 1.2, 1.3, 1.4], "b": [2.0, 2.1, 2.2, 2.3, 2.4]}
    (test,) = compare_seeds(apart, [("b", "a")], level=LEVEL, margin=0.1).values()
    assert (test.method, test.p) == (PERMUTATION, pytest.approx(2 / 252))
    few = {arm: values[:4] for arm, values in apart.items()}
    (test,) = compare_seeds(few, [("b", "a")], level=LEVEL, margin=0.1).values()
    assert test.method == FLOOR


@pytest.mark.parametrize("arms", range(2, 7))
def test_the_correction_counts_the_pairs_that_can_still_be_equal(arms):
    assert most_equal_pairs(arms) == equal_pairs_slowly(arms)


def test_steps_of_three_and_four_arms_are_shaffers():
    assert (most_equal_pairs(3), most_equal_pairs(4)) == ([3, 1, 1], [6, 3, 3, 3, 2, 1])


@pytest.mark.parametrize("sizes", [(3, 3), (3, 5), (6, 6)])
def test_permutations_and_sign_flips_equal_scipys(sizes):
    chance = np.random.default_rng(sum(sizes))
    one, other = (chance.integers(0, 5, size=size).astype(float) for size in sizes)  # with ties
    mean = lambda x, y, axis=-1: np.mean(x, axis=axis) - np.mean(y, axis=axis)  # noqa: E731
    expected = stats.permutation_test((one, other), mean, permutation_type="independent", n_resamples=np.inf)
    assert permutation_p(one, other) == pytest.approx(expected.pvalue)
    expected = stats.permutation_test((other,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(other) == pytest.approx(expected.pvalue)


def test_too_many_splits_are_drawn():
    chance = np.random.default_rng(0)
    one, other = chance.normal(size=(2, 12))
    p = permutation_p(one, other)  # of 2,704,156 splits
    exact = stats.ttest_ind(one, other).pvalue  # near it, for normal runs
    assert p == pytest.approx(exact, abs=0.02)
    assert permutation_p(one, other + 100) == pytest.approx(1 / 200_001)


def test_scores_that_do_not_vary_say_nothing():
    scores = {"a": [0.5] * 3, "b": [0.75] * 3}
    (test,) = compare_seeds(scores, [("b", "a")], level=LEVEL, margin=0.1).values()
    assert (test.p_adjusted, test.p_same, test.low, test.high) == (1.0, None, 0.0, 0.5)
    rounded = {"a": [0.1 + 0.2] * 2 + [0.3], "b": [0.7] * 3}  # 0.30000000000000004
    (test,) = compare_seeds(rounded, [("b", "a")], level=LEVEL, margin=0.1).values()
    assert test.p_adjusted == 1.0


def test_arms_with_too_few_seeds_are_not_tested_and_small_levels_need_more():
    scores = {"a": [1.0, 1.1, 1.2], "b": [5.0, 5.1, 5.2], "c": [9.0, 9.1]}
    tests = compare_seeds(scores, all_pairs(scores), level=LEVEL, margin=0.1)
    assert list(tests) == [("b", "a")]
    alone = compare_seeds({a: scores[a] for a in "ab"}, [("b", "a")], level=LEVEL, margin=0.1)
    assert tests["b", "a"].p_adjusted > alone["b", "a"].p_adjusted  # the family was chosen before the runs were lost
    assert [seeds_to_test(level) for level in (0.05, 0.03, 0.01)] == [3, 3, 5]
    assert compare_seeds(scores, [("b", "a")], level=0.01, margin=0.1) == {}


def folds(values):
    return {arm: dict(enumerate(own)) for arm, own in values.items()}


def test_two_arms_on_folds_are_tested_by_their_differences():
    one, other = [0.5, 0.7, 0.6, 0.9, 0.8], [0.45, 0.62, 0.58, 0.83, 0.76]
    (test,) = compare_folds(folds({"a": one, "b": other}), [("a", "b")], level=LEVEL, margin=0.01).values()
    expected = stats.ttest_rel(one, other)
    assert (test.p, test.method) == (pytest.approx(expected.pvalue), FLOOR)
    assert (test.low, test.high) == pytest.approx(tuple(expected.confidence_interval()))
    longer = folds({"a": [*one, 0.5, 0.6, 0.7], "b": [*other, 0.4, 0.5, 0.6]})
    (test,) = compare_folds(longer, [("a", "b")], level=LEVEL, margin=0.01).values()
    assert (test.p, test.method) == (pytest.approx(2 / 256), SIGN_FLIPS)


def test_the_floor_of_folds_is_the_interaction_of_arms_and_folds():
    chance = np.random.default_rng(4)
    values = {arm: 0.1 * chance.normal(size=3) for arm in "abc"}
    values["c"] = 3 * chance.normal(size=3)
    test = compare_folds(folds(values), all_pairs(values), level=LEVEL, margin=0.01)["b", "a"]
    table = np.array([values[arm] for arm in "abc"])
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    error = math.sqrt(2 / 3 * (rest**2).sum() / (2 * 2))
    covariance = np.cov(rest)
    degrees = 2 * np.trace(covariance) ** 2 / (covariance**2).sum()
    assert test.p == pytest.approx(2 * stats.t.sf(abs(test.difference) / error, degrees))


def test_folds_keep_the_level_where_arms_share_their_difficulty():
    chance, sets, wrong = np.random.default_rng(6), 300, 0
    for _ in range(sets):
        table = 3 * chance.normal(size=5) + 8.0 * (chance.random((4, 5)) < 0.5) + 0.3 * chance.normal(size=(4, 5))
        scores = folds({str(arm): own for arm, own in enumerate(table)})
        tests = compare_folds(scores, all_pairs(scores), level=LEVEL, margin=0.01)
        wrong += any(test.p_adjusted <= LEVEL for test in tests.values())
    assert wrong <= stats.binom.ppf(0.999, sets, LEVEL)


def test_holms_correction():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
