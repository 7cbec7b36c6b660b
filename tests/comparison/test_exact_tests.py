"""The tests, intervals and corrections beside slow references; and, by simulation, that they do not cry wolf."""

import math
from itertools import combinations, product
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from wordorder.comparison.statistics import exact_tests
from wordorder.comparison.statistics.exact_tests import (
    EXACT_PAIRS,
    closed_p,
    holm,
    paired_p,
    seeds_needed,
    share_of_level,
    smallest_p,
    smallest_unpaired_p,
    unpaired_p,
)
from wordorder.comparison.statistics.intervals import (
    paired_mean,
    paired_median,
    subset_means,
    unpaired_mean,
    unpaired_median,
)


def counted_p(values):
    """The share of sign flips that are at least as far from zero."""
    flips = [
        abs(sum(sign * value for sign, value in zip(signs, values, strict=True)))
        for signs in product((1, -1), repeat=len(values))
    ]
    return sum(flip >= abs(sum(values)) - 1e-12 for flip in flips) / len(flips)


@pytest.mark.parametrize("n", [2, 3, 6, 9])
def test_the_paired_test_counts_sign_flips(n):
    values = np.random.default_rng(n).normal(0.5, size=n).tolist()
    assert paired_p(values) == pytest.approx(counted_p(values))
    signed_ranks = np.sign(values) * stats.rankdata(np.abs(values))
    assert paired_p(values, ranks=True) == pytest.approx(counted_p(signed_ranks.tolist()))
    assert paired_p(values, ranks=True) == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)


def test_ties_and_zeros_are_counted():
    assert paired_p([0.0, 0.0, 0.0]) == 1
    assert paired_p([0.0, 1.0, 1.0, 1.0]) == counted_p([0.0, 1.0, 1.0, 1.0]) == 0.25
    assert paired_p([0.0, 0.0, 1.0, 2.0], ranks=True) == 0.5  # the ranks of zeros count for neither side
    assert paired_p([1.0, 1.0, -1.0, 1.0]) == counted_p([1.0, 1.0, -1.0, 1.0])


@pytest.mark.parametrize("n", [1, 2, 6, EXACT_PAIRS])
def test_no_p_value_is_smaller_than_said(n):
    assert paired_p([0.3 + 0.1 * k for k in range(n)]) == smallest_p(n) == 2.0 ** (1 - n)


def test_many_pairs_are_sampled():
    values = (0.35 + np.random.default_rng(1).normal(size=20)).tolist()
    assert paired_p(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.02)
    assert paired_p(values) == paired_p(values)
    assert paired_p([1.0] * 20) == pytest.approx(smallest_p(20))


def test_the_unpaired_test_counts_exchanges():
    one, other = [1.0, 2.5, 3.0, 4.5], [3.5, 5.0, 6.0]
    pooled, seen = one + other, np.mean(one) - np.mean(other)
    differences = [
        np.mean([pooled[i] for i in chosen]) - np.mean([pooled[i] for i in range(7) if i not in chosen])
        for chosen in combinations(range(7), 4)
    ]
    below = sum(value <= seen + 1e-12 for value in differences) / len(differences)
    assert unpaired_p(one, other) == pytest.approx(min(1.0, 2 * below))
    assert unpaired_p([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]) == smallest_unpaired_p(3, 3) == 0.1
    assert unpaired_p([1.0, 2.0, 3.0], [4.0, 5.0, 99.0], ranks=True) == 0.1
    assert unpaired_p([1.0], [4.0, 5.0]) == smallest_unpaired_p(1, 2) == 1


def test_holms_correction():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9, 0.001]) == pytest.approx([1.0, 1.0, 0.003])
    assert holm([]) == []


@pytest.mark.parametrize("level", [0.05, 0.01, 0.1])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.25, 1 / 28])
def test_fewer_seeds_than_needed_cannot_reach_the_level(level, share):
    n = seeds_needed(level, share=share)
    assert smallest_p(n) <= level * share < smallest_p(n - 1)
    n = seeds_needed(level, share=share, paired=False)
    assert smallest_unpaired_p(n, n) <= level * share < smallest_unpaired_p(n - 1, n - 1)


def divisions(members):
    if not members:
        yield []
        return
    first, *rest = members
    for size in range(len(rest) + 1):
        for chosen in combinations(rest, size):
            for others in divisions([one for one in rest if one not in chosen]):
                yield [(first, *chosen), *others]


@pytest.mark.parametrize(("arms", "digits"), [(2, 9), (3, 9), (4, 9), (4, 0), (5, 0), (6, 9)])
def test_closed_testing_goes_through_every_division_of_the_arms(arms, digits):
    chance = np.random.default_rng(arms)
    drawn = chance.normal(0.7 * np.arange(arms), size=(7, arms)).round(digits)  # whole numbers: many ties
    scores = {str(n): dict(enumerate(drawn[:, n].tolist())) for n in range(arms)}
    pairs = list(combinations(scores, 2))
    p_values = {pair: paired_p([scores[pair[0]][s] - scores[pair[1]][s] for s in range(7)]) for pair in pairs}

    def of(group):
        if len(group) == 2:
            return p_values[group]
        table = np.array([[scores[arm][seed] for arm in group] for seed in range(7)])
        sums = stats.rankdata(table, axis=1).sum(axis=0)
        null = exact_tests._null(7, len(group))
        return (1 + np.sum(null >= ((sums - sums.mean()) ** 2).sum() - 1e-9)) / (1 + len(null))

    expected = dict.fromkeys(pairs, 0.0)
    for division in divisions(list(scores)):
        groups = [group for group in division if len(group) > 1]
        parts = sum(len(group) // 2 for group in groups)
        p = min((of(group) * parts / (len(group) // 2) for group in groups), default=0)
        for group in groups:
            for pair in combinations(group, 2):
                expected[pair] = min(1.0, max(expected[pair], p))
    assert closed_p(p_values, scores) == pytest.approx(expected)
    turned = {pair[::-1]: p for pair, p in p_values.items()}
    assert closed_p(turned, scores) == pytest.approx({pair[::-1]: p for pair, p in expected.items()})


def test_friedmans_statistic_has_its_known_distribution():
    null = exact_tests._null(10, 4)
    # sum of squared rank sums -> Friedman's chi square, 12 / (n k (k + 1)) times
    for quantile in (0.5, 0.9, 0.95):
        statistic = 12 / (10 * 4 * 5) * np.quantile(null, quantile)
        assert stats.chi2.cdf(statistic, 3) == pytest.approx(quantile, abs=0.03)
    assert exact_tests._null(2, 3).max() == 8  # ranks 1, 2, 3 twice: sums 2, 4, 6
    assert np.mean(exact_tests._null(2, 3) == 8) == pytest.approx(1 / 6, abs=0.01)


def test_sets_are_ranked_on_the_seeds_that_all_have():
    scores = {name: {seed: 10.0 * n + seed for seed in range(8)} for n, name in enumerate("abc")}
    p_values = dict.fromkeys(combinations("abc", 2), 0.01)
    assert closed_p(p_values, scores) == pytest.approx(p_values)
    scores["c"] = {7: 27.0}
    assert closed_p(p_values, scores) == dict.fromkeys(p_values, 1.0)


@pytest.mark.parametrize("arms", [2, 3, 4, 5, 6, 7])
def test_no_division_gives_a_pair_a_smaller_share(arms):
    most_parts = max(sum(len(group) // 2 for group in division) for division in divisions(list(range(arms))))
    assert share_of_level(arms) == pytest.approx(1 / most_parts)
    assert share_of_level(arms, baseline=True) == 1


def test_the_interval_holds_what_the_test_does_not_reject():
    differences = np.random.default_rng(3).normal(0.2, size=8).tolist()
    for way, ranks in ((paired_mean, False), (paired_median, True)):
        size = way(differences, 0.95)
        for value in np.linspace(-1.5, 2, 71):
            kept = paired_p([d - value for d in differences], ranks=ranks) > 0.05
            assert kept == (size.low <= value <= size.high), (way, value)
        assert size.low < size.difference < size.high


def test_with_too_few_pairs_the_interval_is_students_or_none():
    differences = [0.1, 0.3, 0.2]
    size = paired_mean(differences, 0.95)
    assert (size.low, size.high) == pytest.approx(stats.ttest_1samp(differences, 0).confidence_interval(0.95))
    assert (paired_mean([0.1], 0.95).low, paired_mean([0.1, 0.3], 0.95).effect) == (None, None)
    median = paired_median([0.1, 0.3, 0.2, 0.4, 0.5], 0.95)
    assert (median.low, median.difference, median.effect) == (None, pytest.approx(0.3), 1.0)
    assert paired_median([0.1, 0.3, 0.2, 0.4, 0.5], 0.9).low is not None


def test_equal_differences_have_no_width_and_no_standardised_size():
    size = paired_mean([0.5] * 8, 0.95)
    assert (size.low, size.high, size.effect) == (0.5, 0.5, None)
    assert paired_median([0.0] * 8, 0.95).effect is None


def test_differences_that_agree_but_for_rounding_have_no_standardised_size():
    one = [0.1 * (n + 1) for n in range(6)]
    other = [value + 0.05 for value in one]
    differences = [a - b for a, b in zip(one, other, strict=True)]
    assert 0 < max(differences) - min(differences) < 1e-15
    assert paired_mean(differences, 0.95).effect is None
    assert unpaired_mean([0.1 + 0.2, 0.3, 0.3], [0.6, 0.6, 0.6], 0.95).effect is None
    assert abs(paired_mean([-0.05, -0.05 - 1e-6, -0.05], 0.95).effect) > 1e4


def test_many_pairs_have_the_interval_of_random_subsets():
    differences = np.random.default_rng(4).normal(size=40).tolist()
    size = paired_mean(differences, 0.95)
    t = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (size.low, size.high) == pytest.approx(tuple(t), abs=0.05)
    assert len(subset_means([1.0, 2.0, 4.0])) == 7
    assert subset_means([1.0, 2.0, 4.0]) == pytest.approx([1, 1.5, 2, 7 / 3, 2.5, 3, 4])


def test_groups_without_pairs_have_welchs_interval():
    one, other = [1.0, 2.0, 4.0, 3.0], [5.0, 9.0, 4.0]
    size = unpaired_mean(one, other, 0.9)
    welch = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.9)
    assert (size.low, size.high) == pytest.approx(tuple(welch))
    pooled = math.sqrt((3 * np.var(one, ddof=1) + 2 * np.var(other, ddof=1)) / 5)
    assert size.effect == pytest.approx(size.difference / pooled * (1 - 3 / 19), rel=2e-3)
    assert unpaired_mean([1.0], [2.0, 3.0], 0.9).low is None
    assert (unpaired_mean([1.0, 1.0], [2.0, 2.0], 0.9).low, unpaired_mean([1.0, 1.0], [2.0, 2.0], 0.9).effect) == (
        -1,
        None,
    )
    assert unpaired_median(one, other).difference == np.median([a - b for a in one for b in other])
    assert unpaired_median([1.0, 2.0], [3.0, 4.0]).effect == -1


# ---- simulation: 1,000 results without a difference -------------------------------------------------------------

SETS, LEVEL = 1000, 0.05
NOISE = {
    "normal": lambda chance, shape: chance.normal(size=shape),
    "skewed": lambda chance, shape: chance.exponential(size=shape) ** 1.5,
    "heavy-tailed": lambda chance, shape: chance.standard_t(2, size=shape),
}


def sign_flip_p(differences):
    """One p-value per column."""
    n = len(differences)
    signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    sums = np.abs(signs @ differences)
    return (sums >= sums[0] - 1e-9 * np.abs(differences).sum(axis=0)).mean(axis=0)


def false_claims(scores):
    """In how many of the sets (sets, seeds, arms) any pair is called different; the first ten by `paired_p` itself."""
    arms, found = scores.shape[2], 0
    pairs = list(combinations(range(arms), 2))
    differences = np.stack([scores[:, :, a] - scores[:, :, b] for a, b in pairs], axis=2)
    p_values = np.stack([sign_flip_p(own) for own in differences])
    for number in range(10):
        assert paired_p(differences[number, :, 0].tolist()) == pytest.approx(p_values[number, 0])
    for own, p in zip(scores, p_values, strict=True):
        if p.min() <= LEVEL * share_of_level(arms):  # else no division into pairs is rejected
            by_arm = {str(arm): dict(enumerate(own[:, arm].tolist())) for arm in range(arms)}
            named = {(str(a), str(b)): value for (a, b), value in zip(pairs, p.tolist(), strict=True)}
            found += min(closed_p(named, by_arm).values()) <= LEVEL
    return found


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("seeds", [3, 6, 8, 10])
def test_two_equal_arms_are_called_different_as_often_as_the_exact_test_promises(noise, seeds):
    chance = np.random.default_rng([seeds, len(noise)])
    found = false_claims(NOISE[noise](chance, (SETS, seeds, 2)))
    # p-values are multiples of 2 / 2^n, so the attained level is below 5%: 0, 1/32, 12/256 and 50/1024
    attained = 2 * math.floor(LEVEL * 2**seeds / 2) / 2**seeds
    assert attained == {3: 0, 6: 1 / 32, 8: 12 / 256, 10: 50 / 1024}[seeds]
    low, high = stats.binom.interval(0.99, SETS, attained) if attained else (0, 0)
    assert low <= found <= high


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize(("arms", "seeds"), [(4, 7), (4, 10), pytest.param(8, 8, marks=pytest.mark.slow)])
def test_many_equal_arms_are_not_called_different_more_often_than_the_level(noise, arms, seeds):
    chance = np.random.default_rng([arms, seeds, len(noise)])
    found = false_claims(NOISE[noise](chance, (SETS, seeds, arms)))
    assert found <= stats.binom.interval(0.99, SETS, LEVEL)[1]


def test_arms_equal_two_by_two_and_far_apart_else_keep_the_level():
    chance, found, pairs = np.random.default_rng(5), 0, list(combinations(range(6), 2))
    for _ in range(300):
        scores = chance.normal(size=(8, 6)) + 20 * (np.arange(6) // 2)
        p = sign_flip_p(np.stack([scores[:, a] - scores[:, b] for a, b in pairs], axis=1)).tolist()
        named = {(str(a), str(b)): value for (a, b), value in zip(pairs, p, strict=True)}
        judged = closed_p(named, {str(arm): dict(enumerate(scores[:, arm].tolist())) for arm in range(6)})
        found += any(judged[str(n), str(n + 1)] <= LEVEL for n in (0, 2, 4))
        assert judged["0", "5"] <= LEVEL
    assert 0 < found <= stats.binom.interval(0.99, 300, LEVEL)[1]


def test_intervals_hold_the_truth_as_often_as_they_say():
    chance, inside = np.random.default_rng(6), dict.fromkeys((3, 6, 10), 0)
    for seeds in inside:
        for differences in chance.normal(size=(SETS, seeds)).tolist():
            size = paired_mean(differences, 0.95)
            inside[seeds] += size.low <= 0 <= size.high
    # six pairs: the least and the greatest difference, which hold it with 1 - 2/64
    for seeds, share in {3: 0.95, 6: 62 / 64, 10: 1 - 50 / 1024}.items():
        low, high = stats.binom.interval(0.99, SETS, share)
        assert low <= inside[seeds] <= high


def test_a_difference_of_two_standard_deviations_is_found():
    chance = np.random.default_rng(7)
    found = {n: np.mean(sign_flip_p(2 + chance.normal(size=(n, SETS))) <= LEVEL) for n in (5, 6, 8)}
    every = NormalDist().cdf(2) ** 6  # six seeds: all differences must be on its side
    assert found[5] == 0
    assert found[6] == pytest.approx(every, abs=0.03)
    assert found[8] > 0.99
