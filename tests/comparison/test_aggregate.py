"""Aggregates over tasks, against numbers computed by hand and by scipy, and the coverage of their intervals."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from wordorder.comparison.statistics import aggregate as module
from wordorder.comparison.statistics.aggregate import (
    aggregate,
    normalised,
    rank_correlation,
    ranks,
    stratified_p,
    tasks_needed,
    win_probability,
)

LOST = -math.inf


def arms_of(*scores):
    return [np.array(own, dtype=float) for own in scores]


def aggregated(tasks):
    return aggregate(tasks, tasks, [f"arm {number}" for number in range(len(tasks[0]))])


def middle_of(*scores):
    """The interquartile mean of one arm with these runs on each task."""
    tasks = [arms_of(own, own) for own in scores]
    return aggregated(tasks).interquartile_mean[0].value


def test_a_tie_counts_half():
    assert win_probability(*arms_of([3, 1], [2, 1])) == 2.5 / 4
    assert win_probability(*arms_of([2, 1], [3, 1])) == 1.5 / 4


def test_a_lost_run_is_worse_than_any_number_and_equal_to_another():
    assert win_probability(*arms_of([LOST], [-1e300])) == 0
    assert win_probability(*arms_of([LOST, 5], [LOST, 1])) == (0.5 + 0 + 1 + 1) / 4


def test_ranks_are_those_of_a_run_among_one_of_each_arm():
    # P(a > b) = 1, P(a > c) = 1/2, P(b > c) = 1/2
    assert ranks(arms_of([5, 5], [1, 1], [9, 0])) == [1 + 0 + 0.5, 1 + 1 + 0.5, 1 + 0.5 + 0.5]
    assert ranks(arms_of([1], [1], [1])) == [2, 2, 2]
    assert ranks(arms_of([1], [3], [2])) == [3, 1, 2]


def test_the_interquartile_mean_is_that_of_the_middle_half():
    scores = [7.0, 0.0, 3.0, 100.0, 2.0, 5.0, -50.0, 4.0]
    assert middle_of(scores) == pytest.approx(stats.trim_mean(scores, 0.25))
    # of five runs the second and fourth count three quarters
    assert middle_of([10, 0, 0, 2, 1]) == pytest.approx((0.75 * 0 + 1 + 0.75 * 2) / 2.5)
    assert middle_of([4.0]) == 4


def test_each_task_counts_the_same_whatever_its_runs():
    tasks = [arms_of([1] * 12, [0] * 12), arms_of([0, 0], [1, 1])]
    found = aggregated(tasks)
    assert found.improvement[0].probability.value == pytest.approx(0.5)
    assert [one.value for one in found.mean_rank] == pytest.approx([1.5, 1.5])
    assert [one.value for one in found.interquartile_mean] == pytest.approx([0.5, 0.5])


def test_scores_with_anchors_do_not_depend_on_the_arms():
    few = normalised(arms_of([-2, -1]), (-4.0, 0.0))
    more = normalised(arms_of([-2, -1], [-3, -8]), (-4.0, 0.0))
    assert few[0].tolist() == more[0].tolist() == [0.5, 0.75]
    assert more[1].tolist() == [0.25, -1.0]


def test_scores_without_anchors_lie_between_the_worst_and_the_best_run():
    assert [own.tolist() for own in normalised(arms_of([1, 3], [5, 2]), None)] == [[0.0, 0.5], [1.0, 0.25]]


@pytest.mark.parametrize(
    ("scores", "anchors", "expected"),
    [
        ([[LOST, 3], [5, 1]], None, [[0.0, 0.5], [1.0, 0.0]]),
        ([[LOST, 3], [5, 1]], (0.0, 10.0), [[0.0, 0.3], [0.5, 0.1]]),
        ([[LOST, 3], [-5, 1]], (0.0, 10.0), [[-0.5, 0.3], [-0.5, 0.1]]),
        ([[LOST, 2], [2, 2]], None, [[0.0, 1.0], [1.0, 1.0]]),
        ([[LOST], [LOST]], None, [[0.0], [0.0]]),
        ([[LOST], [LOST]], (1.0, 2.0), [[0.0], [0.0]]),
    ],
)
def test_a_lost_run_has_the_score_of_the_worst(scores, anchors, expected):
    assert [own.tolist() for own in normalised(arms_of(*scores), anchors)] == expected


def test_the_exchange_test_is_that_of_mann_and_whitney_on_one_task():
    one, other = arms_of([5, 6, 7, 9], [1, 8, 3, 4])
    exact = stats.mannwhitneyu(one, other, method="exact").pvalue
    assert stratified_p([(one, other)]) == pytest.approx(exact, abs=0.01)
    assert stratified_p([tuple(arms_of([5, 6, 7, 8], [1, 2, 3, 4]))]) == pytest.approx(2 / 70, abs=0.005)


def test_tasks_that_agree_add_up_and_tasks_that_contradict_cancel():
    ahead = tuple(arms_of([4, 5, 6], [1, 2, 3]))
    assert stratified_p([ahead]) == pytest.approx(2 / 20, abs=0.01)
    assert stratified_p([ahead] * 3) == pytest.approx(2 / 20**3, abs=0.0005)
    assert stratified_p([ahead, ahead[::-1]]) == 1.0
    behind = tuple(arms_of([1, 2], [3, 4]))  # fewer runs, but a task counts the same
    assert stratified_p([ahead, behind]) == 1.0
    assert stratified_p([tuple(arms_of([1, 1], [1, 1]))]) == 1.0


def test_a_claim_about_other_tasks_takes_as_many_as_one_about_seeds():
    assert [tasks_needed(arms, 0.05) for arms in (2, 4, 8)] == [6, 7, 8]  # docs/statistics.md, all pairs
    apart = [arms_of([2, 2, 2], [1, 1, 1])] * 6
    assert aggregated(apart[:5]).improvement[0].p_on_others == 2 / 2**5
    assert aggregated(apart).improvement[0].p_on_others == 2 / 2**6


def test_pairs_are_corrected_for_their_number():
    chance = np.random.default_rng(0)
    tasks = [[chance.normal(size=3) + 3 * (arm == 0) for arm in range(4)] for _ in range(3)]
    found = aggregated(tasks)
    pairs = [[int(name.removeprefix("arm ")) for name in (pair.arm, pair.against)] for pair in found.improvement]
    raw = [stratified_p([(runs[one], runs[other]) for runs in tasks]) for one, other in pairs]
    assert min(pair.p_on_these for pair in found.improvement) == pytest.approx(6 * min(raw))  # Holm, six pairs
    assert all(pair.p_on_others >= 0.25 for pair in found.improvement)


def test_intervals_hold_the_number_and_are_missing_where_nothing_can_be_drawn():
    chance = np.random.default_rng(3)
    tasks = [[chance.normal(size=4) for _ in range(3)] for _ in range(5)]
    for number in (found := aggregated(tasks)).mean_rank + found.interquartile_mean:
        for interval in (number.over_seeds, number.over_tasks):
            assert interval is not None
            assert interval[0] < number.value < interval[1]
    assert aggregated(tasks) == found  # the seed of the bootstrap is fixed
    two = aggregated(tasks[:2]).mean_rank[0]
    assert two.over_tasks is None
    assert two.over_seeds is not None
    tasks[3][1] = tasks[3][1][:1]
    single = aggregated(tasks).mean_rank[0]
    assert single.over_seeds is None
    assert single.over_tasks is not None


def test_kendalls_tau_of_ranks():
    assert rank_correlation([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 3], [2, 2, 2]) is None


def within(share: float, expected: float, sets: int) -> bool:
    """Whether a share of so many sets is at least the expected one, up to a chance of one in a hundred."""
    return share >= expected - 2.33 * math.sqrt(expected * (1 - expected) / sets)


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "runs"), [(4, 3), (6, 5)])
def test_intervals_hold_the_truth_as_often_as_they_say(monkeypatch, tasks, runs):
    monkeypatch.setattr(module, "REPLICATES", 1000)
    monkeypatch.setattr(module, "PERMUTATIONS", 9)  # not looked at
    chance, sets, hits = np.random.default_rng(5), 300, {"rank": 0, "middle": 0, "pair": 0}
    levels = chance.normal(0, 0.7, (tasks, 2))  # of the arms on each task; the same in every set
    truth = float(np.mean([NormalDist().cdf((a - b) / math.sqrt(2)) for a, b in levels]))
    many = np.sort(np.concatenate([chance.normal(level, 1, 100_000) for level in levels[:, 0]]))
    middle = float(many[len(many) // 4 : 3 * len(many) // 4].mean())
    for _ in range(sets):
        drawn = [[chance.normal(level, 1, runs) for level in own] for own in levels]
        found = aggregated(drawn)
        for name, number, true in (
            ("rank", found.mean_rank[0], 2 - truth),
            ("middle", found.interquartile_mean[0], middle),
            ("pair", found.improvement[0].probability, truth),
        ):
            assert number.over_seeds is not None
            hits[name] += number.over_seeds[0] <= true <= number.over_seeds[1]
    assert all(within(count / sets, 0.93, sets) for count in hits.values()), hits


@pytest.mark.slow
def test_intervals_over_tasks_hold_the_truth_of_other_tasks(monkeypatch):
    monkeypatch.setattr(module, "REPLICATES", 1000)
    monkeypatch.setattr(module, "PERMUTATIONS", 9)
    chance, sets, hits = np.random.default_rng(6), 300, 0
    truth = NormalDist().cdf(0.5 / math.sqrt(2 + 2))  # noise of two runs, and of two arms' levels on a task
    for _ in range(sets):
        levels = chance.normal([0.5, 0.0], 1, (8, 2))
        drawn = [[chance.normal(level, 1, 4) for level in own] for own in levels]
        interval = aggregated(drawn).improvement[0].probability.over_tasks
        assert interval is not None
        hits += interval[0] <= truth <= interval[1]
    assert within(hits / sets, 0.93, sets), hits


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "runs", "arms"), [(1, 5, 2), (3, 3, 4), (6, 3, 4)])
def test_equal_arms_are_seldom_called_different(monkeypatch, tasks, runs, arms):
    monkeypatch.setattr(module, "REPLICATES", 2)  # not looked at
    monkeypatch.setattr(module, "PERMUTATIONS", 1999)
    chance, sets, claims = np.random.default_rng(7), 200, {"these": 0, "others": 0}
    for _ in range(sets):
        drawn = [[chance.normal(size=runs) for _ in range(arms)] for _ in range(tasks)]
        found = aggregated(drawn).improvement
        claims["these"] += any(pair.p_on_these <= 0.05 for pair in found)
        claims["others"] += any(pair.p_on_others <= 0.05 for pair in found)
    assert all(within(1 - count / sets, 0.95, sets) for count in claims.values()), claims
