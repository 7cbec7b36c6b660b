"""Masks have BERT's frequencies, spare special tokens, and depend on (seed, epoch, index) alone."""

import numpy as np
import pytest

from wordorder.data.examples.masking import IGNORED, Masking
from wordorder.data.examples.order import counter_hash, splitmix64, uniform

V, MASK = 1005, 4
SPECIAL = np.arange(V) < 5


def mask(ids, *, probability=0.15, seed=0, epoch=0, index=None, present=None):
    index = np.arange(len(ids)) if index is None else index
    masking = Masking(probability=probability, mask_id=MASK, special=SPECIAL)
    present = np.ones(ids.shape, bool) if present is None else present
    return masking(ids, present, seed=seed, epoch_B=np.full(len(ids), epoch), index_B=np.asarray(index))


@pytest.fixture(scope="module")
def ids():
    tokens = np.random.default_rng(0).integers(5, V, (2000, 64))
    tokens[:, 0], tokens[:, -1], tokens[::7, 30] = 2, 3, 1
    return tokens


def test_splitmix64_has_the_published_values():
    # The first outputs of the reference implementation from state 0: the state advances by the golden gamma.
    states = np.array([0, 1, 2], np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [hex(int(x)) for x in splitmix64(states)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_counter_hash_uses_every_counter_and_their_order():
    values = {int(counter_hash(*key)[0]) for key in [(0, 1, 2), (1, 1, 2), (0, 2, 1), (0, 1), (0, 1, 3), (-1, 1, 2)]}
    assert len(values) == 6
    u = uniform(counter_hash(3, np.arange(100_000)))
    assert u.min() >= 0
    assert u.max() < 1
    assert np.histogram(u, 10, (0, 1))[0] == pytest.approx(10_000, abs=500)


def test_count_is_the_probability_rounded_up_or_down_at_random(ids):
    _, labels = mask(ids)
    ordinary = (~SPECIAL[ids]).sum(axis=1)
    counts = (labels != IGNORED).sum(axis=1)
    assert (np.abs(counts - 0.15 * ordinary) < 1).all()
    assert counts.mean() == pytest.approx(0.15 * ordinary.mean(), abs=0.05)


def test_a_tenth_is_random_a_tenth_is_kept_the_rest_is_masked(ids):
    seen, labels = mask(ids)
    chosen = labels != IGNORED
    n = chosen.sum()
    assert (labels[chosen] == ids[chosen]).all()
    assert (seen[~chosen] == ids[~chosen]).all()
    masked, kept = (seen[chosen] == MASK).mean(), (seen[chosen] == ids[chosen]).mean()
    deviation = (0.16 / n) ** 0.5
    assert masked == pytest.approx(0.8, abs=4 * deviation)
    assert kept == pytest.approx(0.1, abs=4 * deviation)
    random = seen[chosen & (seen != MASK) & (seen != ids)]
    assert not SPECIAL[random].any()
    assert random.mean() == pytest.approx((5 + V - 1) / 2, abs=4 * 290 / len(random) ** 0.5)
    assert random.max() > V - 20


def test_every_position_is_chosen_equally_often(ids):
    _, labels = mask(ids)
    share = (labels != IGNORED)[:, 1:-1].mean(axis=0)
    assert share == pytest.approx(0.15, abs=5 * (0.15 * 0.85 / len(ids)) ** 0.5)


def test_specials_and_padding_are_never_chosen(ids):
    present = np.arange(64) < 40
    _, labels = mask(ids, probability=0.9, present=np.broadcast_to(present, ids.shape))
    assert not (SPECIAL[ids] & (labels != IGNORED)).any()
    assert (labels[:, 40:] == IGNORED).all()


def test_at_least_one_token_is_predicted_and_none_where_there_is_none():
    short = np.array([[2, 9, 3], [2, 1, 3]])
    _, labels = mask(short, probability=0.01)
    assert labels.tolist() == [[IGNORED, 9, IGNORED], [IGNORED] * 3]
    _, labels = mask(np.full((100, 5), 9), probability=0.01)
    assert ((labels != IGNORED).sum(axis=1) == 1).all()


def test_a_row_does_not_depend_on_its_batch(ids):
    seen, labels = mask(ids[:50])
    wide = np.pad(ids[[7, 3]], ((0, 0), (0, 9)))
    present = np.arange(73) < 64
    again = mask(wide, index=[7, 3], present=np.broadcast_to(present, wide.shape))
    assert (again[0][:, :64] == seen[[7, 3]]).all()
    assert (again[1][:, :64] == labels[[7, 3]]).all()


@pytest.mark.parametrize("change", [{"seed": 1}, {"epoch": 1}, {"index": np.arange(2000) + 1}])
def test_seed_epoch_and_index_each_change_the_mask(ids, change):
    before, after = mask(ids)[1] != IGNORED, mask(ids, **change)[1] != IGNORED
    both = (before & after).sum() / before.sum()
    assert both == pytest.approx(0.15, abs=0.02)  # as if drawn independently
