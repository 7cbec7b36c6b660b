"""The exact test of arms of which some runs have a partner, against enumeration one by one and against scipy."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from wordorder.comparison.statistics.intervals import partly_paired


def drawn(seed, shift=0.0):
    chance = np.random.default_rng(seed)
    return chance.normal(shift, 1, 4), chance.normal(shift, 1, 3), chance.normal(size=2)


def one_by_one(differences, one, other):
    """The statistic of every arrangement, what was seen first."""
    paired, alone = len(differences) / 2, 1 / (1 / len(one) + 1 / len(other))
    pooled, found = [*one, *other], []
    for signs in product([1, -1], repeat=len(differences)):
        for chosen in combinations(range(len(pooled)), len(one)):
            mine = np.mean([pooled[i] for i in chosen])
            theirs = np.mean([pooled[i] for i in range(len(pooled)) if i not in chosen])
            pairs = np.mean([sign * value for sign, value in zip(signs, differences, strict=True)])
            found.append((paired * pairs + alone * (mine - theirs)) / (paired + alone))
    return np.array(found)


@pytest.mark.parametrize("seed", range(5))
def test_every_arrangement_is_counted(seed):
    differences, one, other = drawn(seed, 0.8)
    found = one_by_one(differences, one, other)
    size, p, least = partly_paired(differences, one, other, 0.9)
    assert size.difference == pytest.approx(found[0])
    assert p == pytest.approx(np.mean(np.abs(found) >= abs(found[0]) - 1e-12))
    assert least == 2 / (16 * 10)


def test_the_interval_has_what_the_test_does_not_reject():
    sides = set()
    for seed in range(40):
        differences, one, other = drawn(seed, 0.9)
        size, _, _ = partly_paired(differences, one, other, 0.9)
        for shift, rejected in ((size.low - 0.01, True), (size.low + 0.01, False), (size.high + 0.01, True)):
            # one-sided: 5% beyond each end
            found = one_by_one(differences - shift, one - shift, other)
            beyond = min(np.mean(found >= found[0] - 1e-12), np.mean(found <= found[0] + 1e-12))
            assert (beyond <= 0.05) == rejected
        sides.add(size.low > 0)
    assert sides == {True, False}


def test_many_runs_are_sampled():
    chance = np.random.default_rng(0)
    differences, one, other = chance.normal(0.4, 1, 15), chance.normal(0.4, 1, 6), chance.normal(size=6)
    size, p, least = partly_paired(differences, one, other, 0.95)
    assert least == 2 / 100_000
    assert p == pytest.approx(2 * stats.norm.sf(abs(size.difference) / np.sqrt(1 / (15 + 3))), abs=0.05)


@pytest.mark.slow
def test_the_level_holds():
    wrong = sum(partly_paired(*drawn(seed), 0.95)[1] <= 0.05 for seed in range(2000))
    assert 55 <= wrong <= 130  # 99.9% of a true 4.4%, the last step below 5%, lie within
