"""Orders are permutations, pure functions of (seed, epoch), and group lengths without padding much."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wordorder.data import EpochOrder, LengthGroupedEpochOrder


@given(st.integers(1, 300), st.integers(0, 5), st.integers(0, 5), st.integers(1, 17))
def test_every_index_once_with_its_epoch(length, seed, epoch, batch_size):
    lengths = np.arange(length) % 7
    for order in (EpochOrder(length, seed=seed), LengthGroupedEpochOrder(lengths, batch_size=batch_size, seed=seed)):
        order.set_epoch(epoch)
        keys = list(order)
        assert {e for e, _ in keys} == {epoch}
        assert sorted(i for _, i in keys) == list(range(length))
        assert keys == list(order)
        assert len(order) == length


def make(kind, seed):
    return (
        EpochOrder(500, seed=seed) if kind == "plain" else LengthGroupedEpochOrder([1] * 500, batch_size=8, seed=seed)
    )


@pytest.mark.parametrize("kind", ["plain", "grouped"])
def test_seed_and_epoch_change_the_order_and_history_does_not(kind):
    one, other, later = make(kind, 0), make(kind, 1), make(kind, 0)
    later.set_epoch(5)
    list(later)
    later.set_epoch(1)
    first = [i for _, i in one]
    assert first != [i for _, i in other]
    one.set_epoch(1)
    assert first != [i for _, i in one]
    assert list(one) == list(later)


def test_no_shuffle_is_the_order_given():
    assert list(EpochOrder(3, seed=0, shuffle=False)) == [(0, 0), (0, 1), (0, 2)]


def test_batches_hold_similar_lengths():
    lengths = np.random.default_rng(0).integers(1, 100, 4001)

    def padding(indices):
        batches = np.split(lengths[indices], range(16, len(indices), 16))
        return sum(batch.max() * len(batch) - batch.sum() for batch in batches) / lengths.sum()

    plain = padding([i for _, i in EpochOrder(4001, seed=0)])
    grouped = padding([i for _, i in LengthGroupedEpochOrder(lengths, batch_size=16, seed=0)])
    assert grouped < plain / 10


@pytest.mark.parametrize("arguments", [{"length": 0}, {"length": -1}])
def test_an_empty_order_is_refused(arguments):
    with pytest.raises(ValueError, match="length must be positive"):
        EpochOrder(**arguments, seed=0)
    with pytest.raises(ValueError, match="batch_size must be positive"):
        LengthGroupedEpochOrder([1], batch_size=0, seed=0)
