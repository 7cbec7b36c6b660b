"""First tokens stay row by row: in rows of unequal lengths, after a row is forgotten, and in cut states."""

import pytest
import torch
from torch.testing import assert_close

from wordorder import Decoder
from wordorder.memory import FirstTokensRecurrence, SegmentRecurrence

IDS = torch.arange(40).view(2, 20) % 22 + 1


def decoder(memory):
    network = Decoder(23, width=16, layers=2, heads=2, encoding="rope", dropout=0.0, memory=memory).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(parameter.numel()))
    return network


def test_short_texts_are_those_of_segment_recurrence():
    ours, plain, states = decoder(FirstTokensRecurrence(12, first=3)), decoder(SegmentRecurrence(12)), [None, None]
    for cut in ((0, 5), (5, 9), (9, 12)):
        reads = [n(IDS[:, slice(*cut)], memory=s) for n, s in zip((ours, plain), states, strict=True)]
        states = [read.memory for read in reads]
        assert_close(reads[0].hidden, reads[1].hidden, rtol=0, atol=0)


@pytest.mark.parametrize("lengths", [(6, 6, 6), (6, 2, 0), (1, 6, 5), (3, 3, 4)])
def test_a_row_beside_a_longer_one_keeps_its_own_first_tokens(lengths):
    network, state, alone, start = decoder(FirstTokensRecurrence(5, first=2)), None, None, 0
    for count in lengths:
        ids, padding = IDS[:, :6].clone(), torch.zeros(2, 6, dtype=torch.bool)
        ids[1, :count], padding[1, count:] = IDS[1, start : start + count], True
        read = network(ids, memory=state, key_padding_mask=padding)
        state, start = read.memory, start + count
        if count:
            expected = network(ids[1:, :count], memory=alone)
            alone = expected.memory
            assert_close(read.hidden[1, :count], expected.hidden[0], rtol=0, atol=1e-12)
        held = alone.length
        for name, tensor in alone.slots.items():
            assert_close(state.slots[name][1:, -held:], tensor, rtol=0, atol=1e-12)


def test_a_row_that_is_forgotten_begins_with_new_first_tokens():
    network = decoder(FirstTokensRecurrence(5, first=2))
    state = network(IDS[:, :9]).memory.reset(torch.tensor([True, False]))
    for cut in ((9, 13), (13, 20)):
        read = network(IDS[:, slice(*cut)], memory=state)
        state = read.memory
    fresh = network(IDS[:1, 13:20], memory=network(IDS[:1, 9:13]).memory)
    assert_close(read.hidden[:1], fresh.hidden, rtol=0, atol=1e-12)
    for name, tensor in fresh.memory.slots.items():
        assert_close(state.slots[name][:1], tensor, rtol=0, atol=1e-12)


def test_a_state_of_more_slots_is_cut_to_its_first_and_newest():
    long, short = decoder(FirstTokensRecurrence(15, first=3)), decoder(FirstTokensRecurrence(6, first=3))
    state = long(IDS[:, :14]).memory
    segment = short.open_segment(state)
    for name, tensor in segment.state.slots.items():
        assert_close(tensor, state.slots[name][:, [0, 1, 2, 11, 12, 13]], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"first": 0}, r"first must be a whole number in 1 \.\. length - 1 = 4, got 0"),
        ({"first": 5}, "got 5"),
        ({"first": 2.0}, "got 2.0"),
        ({"first": 2, "same_length": True}, "same_length would hide the first tokens"),
    ],
)
def test_what_makes_no_sense_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        FirstTokensRecurrence(5, **options)
