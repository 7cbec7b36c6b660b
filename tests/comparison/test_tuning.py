"""The search for learning rates: the grid, halved from seed to seed, and what lies beyond its edges."""

import math

import pytest

from wordorder.comparison.runs import Rates, Score, Search, best_of
from wordorder.comparison.statistics.curves import at_edge


def search(loss, **options):
    """Run a search whose scores a function of (rates, seed) gives; return the scores and the trials of each round."""
    found, scores, rounds = Search(**options), {}, []
    while trials := found.next_trials(scores):
        rounds.append(trials)
        assert len(rounds) < 20
        for rates, seed in trials:
            assert seed not in scores.get(rates, {}), "a trial comes twice"
            value = loss(rates, seed)
            scores.setdefault(rates, {})[seed] = Score(value) if isinstance(value, (int, float)) else value
    return scores, rounds


def bowl(rate, factor):
    """A loss with its minimum at these rates, in octaves."""
    return lambda rates, seed: abs(math.log2(rates.rate / rate)) + abs(math.log2((rates.factor or 1) / factor))


def test_each_further_seed_has_the_better_half():
    rates, factors = (1.0, 2.0, 4.0), (1.0, 4.0, 16.0)
    scores, rounds = search(bowl(2, 4), rates=rates, factors=factors, seeds=(7, 8, 9))
    assert [len(trials) for trials in rounds] == [9, 5, 3]
    assert [{seed for _, seed in trials} for trials in rounds] == [{7}, {8}, {9}]
    assert Rates(2.0, 4.0) in {one for one, _ in rounds[2]}
    assert best_of(scores) == (2, 4)


def test_a_lucky_first_seed_does_not_win():
    """The median over the seeds counts, and rates that were dropped are no candidates, however good their one score."""

    def loss(rates, seed):
        return {1.0: {0: 0.1, 1: 9.0}, 2.0: {0: 0.5, 1: 0.4}, 4.0: {0: 0.6, 1: 0.2}}[rates.rate][seed]

    scores, _ = search(loss, rates=(1.0, 2.0, 4.0), factors=(None,), seeds=(0, 1))
    assert sorted(scores[Rates(4.0)]) == [0]
    assert best_of(scores) == (2, None)


def test_both_rates_are_extended_together():
    scores, rounds = search(bowl(8, 1 / 16), rates=(1.0, 2.0), factors=(1.0, 4.0), seeds=(0, 1), extend=2)
    assert [[one for one, seed in trials if seed == 0] for trials in rounds[2:]] == [
        [(2.0, 0.25), (4.0, 1.0), (4.0, 0.25)],
        [(4.0, 0.0625), (8.0, 0.25), (8.0, 0.0625)],
    ]
    assert best_of(scores) == (8, 1 / 16)


@pytest.mark.parametrize(("extend", "best"), [(0, 2), (1, 4), (2, 8), (3, 16), (5, 16)])
def test_the_grid_is_extended_at_most_so_often(extend, best):
    scores, _ = search(bowl(16, 1), rates=(1.0, 2.0), factors=(None,), seeds=(0, 1), extend=extend)
    assert best_of(scores) == (best, None)
    assert all(len(seeds) == 2 for one, seeds in scores.items() if one.rate > 2), "beyond the edge all seeds count"


def test_downwards_the_ratio_is_that_of_the_first_two():
    scores, _ = search(bowl(0.001, 1), rates=(0.1, 0.2, 1.0), factors=(None,), seeds=(0,), extend=2)
    assert sorted(one.rate for one in scores) == [0.025, 0.05, 0.1, 0.2, 1.0]


def test_a_single_value_has_no_edge():
    scores, rounds = search(bowl(16, 1), rates=(1.0,), factors=(None,), seeds=(0,), extend=3)
    assert [len(trials) for trials in rounds] == [1]
    assert best_of(scores) == (1, None)


def test_rates_that_fail_lose_against_those_that_train():
    def loss(rates, seed):
        return None if (rates.rate, seed) == (2.0, 1) else 1 / rates.rate

    scores, _ = search(loss, rates=(1.0, 2.0), factors=(None,), seeds=(0, 1))
    assert scores[Rates(2.0)] == {0: Score(0.5), 1: None}
    scores[Rates(1.0)] = {0: Score(1.0), 1: Score(1.0)}
    assert best_of(scores) == (1, None)
    assert best_of({Rates(1.0): {0: None}}) is None
    assert best_of({}) is None


def test_the_loss_decides_between_equal_scores():
    """Every rate reaches the highest accuracy: without the loss the lowest one would win, and extend the grid."""

    def accuracy(rates, seed):
        return Score(-1.0, bowl(2, 4)(rates, seed))

    scores, rounds = search(accuracy, rates=(1.0, 2.0, 4.0), factors=(1.0, 4.0, 16.0), seeds=(0, 1), extend=2)
    assert best_of(scores) == (2, 4)
    assert len(rounds) == 2, "the best rates are inside the grid"


def test_edges():
    assert at_edge(1, [1, 2, 4])
    assert at_edge(4, [1, 2, 4])
    assert not at_edge(2, [1, 2, 4])
    assert not at_edge(1, [1, 1])
    assert not at_edge(None, [None, None])
