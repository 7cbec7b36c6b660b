"""A memory that is one file of somebody else, beside what each network does for the package's own."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from network_cases import IN_ENCODERS, SIZES, decoder, shaken
from torch.testing import assert_close

from wordorder import Encoder, SegmentRecurrence
from wordorder.memory import MemoryState

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contribution"))
from fading import FadingMemory

IDS = torch.arange(40).view(2, 20) % 39 + 1
RELATIVE = ["none", "rope", "t5", "transformer-xl", "tupe-r", "cope", "rope@4,t5"]


def faded(state, keep):
    """What segment recurrence would have to be handed."""
    return {name: keep * tensor for name, tensor in state.slots.items()}


@pytest.mark.parametrize("encoding", RELATIVE)
def test_without_fading_it_is_segment_recurrence_with_every_gradient(encoding):
    ours, plain = (decoder(encoding, memory=memory) for memory in (FadingMemory(6, keep=1.0), SegmentRecurrence(6)))
    states, hidden = [None, None], []
    for start, stop in pairwise((0, 5, 6, 13, 20)):
        reads = [n(IDS[:, start:stop], memory=state) for n, state in zip((ours, plain), states, strict=True)]
        states = [read.memory for read in reads]
        hidden.append([read.hidden for read in reads])
    mine, theirs = (torch.cat(rows, 1) for rows in zip(*hidden, strict=True))
    assert_close(mine, theirs, rtol=0, atol=0)
    assert_close(states[0].slots, states[1].slots, rtol=0, atol=0)
    upstream = torch.randn_like(mine)
    gradients = [
        torch.autograd.grad((y * upstream).sum(), list(n.parameters()), allow_unused=True)
        for y, n in ((mine, ours), (theirs, plain))
    ]
    for first, second in zip(*gradients, strict=True):
        assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("encoding", RELATIVE)
def test_slots_fade_with_every_segment(encoding):
    network = decoder(encoding, memory=FadingMemory(7, keep=0.5))
    plain = decoder(encoding, memory=SegmentRecurrence(7))
    first = network(IDS[:, :5]).memory
    second = network(IDS[:, 5:9], memory=first)
    expected = plain(IDS[:, 5:9], memory=MemoryState(**{**vars(first), "kind": "segment-recurrence"}))
    assert_close(second.hidden, expected.hidden, rtol=0, atol=0)
    for name, tensor in second.memory.slots.items():
        assert_close(tensor[:, :3], 0.5 * first.slots[name][:, -3:], rtol=0, atol=0)
        assert_close(tensor[:, 3:], expected.memory.slots[name][:, 3:], rtol=0, atol=0)
    third = network(IDS[:, 9:10], memory=second.memory).memory
    for name, tensor in third.slots.items():
        assert_close(tensor[:, :2], 0.25 * first.slots[name][:, -2:], rtol=0, atol=0)


def test_a_segment_in_steps_fades_once_and_beams_take_it_along():
    network = decoder("rope", memory=FadingMemory(6, keep=0.5))
    before = network(IDS[:, :7]).memory
    whole = network(IDS[:, 7:], memory=before)
    segment, pieces = network.open_segment(before, keep=True), []
    for start, stop in pairwise((7, 10, 11, 20)):
        step = network.read_segment(segment, IDS[:, start:stop])
        pieces.append(step.hidden)
        segment = step.segment
    assert_close(torch.cat(pieces, 1), whole.hidden, rtol=1e-10, atol=1e-10)
    swapped = segment.reorder(torch.tensor([1, 0])).close()
    for name, tensor in whole.memory.slots.items():
        assert_close(swapped.slots[name][[1, 0]], tensor, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("encoding", ["rope", "t5", "learned"])
def test_encoders_have_it_too(encoding):
    assert encoding in IN_ENCODERS
    network = shaken(Encoder(40, encoding=encoding, memory=FadingMemory(6), **SIZES)).double()
    state = network(IDS[:, :6]).memory
    read = network(IDS[:, 6:12], memory=state)
    assert not torch.allclose(read.hidden, network(IDS[:, 6:12]).hidden)
    saved = MemoryState.from_state_dict(state.state_dict())
    assert_close(network(IDS[:, 6:12], memory=saved).hidden, read.hidden, rtol=0, atol=0)


def test_a_state_of_another_memory_is_refused():
    state = decoder("rope", memory=SegmentRecurrence(6))(IDS[:, :6]).memory
    with pytest.raises(ValueError, match="memory must be of fading here, got one of segment-recurrence"):
        decoder("rope", memory=FadingMemory(6))(IDS[:, 6:], memory=state)
