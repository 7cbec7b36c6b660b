"""Check in seconds, in tiny decoders, that a memory can be read in steps, saved, and read in rows of two lengths.

A memory that is right only where a segment is read at once trains well and generates nonsense, without an error.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from wordorder.errors import BadInput
from wordorder.memory import Memory, MemoryState
from wordorder.networks.decoder import Decoder
from wordorder.networks.encoding_checks import CLOSE, difference, random_ids, tiny, tried

LENGTH, SEGMENTS, SHORTER = 5, [4, 3, 6], [2, 1, 5]
"""Slots, tokens of the segments, and of those of a shorter row, which has room for all of its tokens at first."""


def check_memory(memory: type[Memory]) -> list[str]:
    """Return the faults of a memory, tried with five slots, each with its remedy; none = it may be trained."""
    return tried(partial(_faults, memory))


def _faults(memory: type[Memory]) -> Iterator[str]:
    network = tiny(Decoder, encoding="rope", memory=memory(LENGTH))
    text = torch.split(random_ids(2, sum(SEGMENTS)), SEGMENTS, 1)
    at_once, states = _read(network, text, [[size] for size in SEGMENTS])
    longest = max(state.length for state in states)
    if longest > LENGTH:
        yield f"it keeps {longest} slots, and has a length of {LENGTH}"
    in_steps, states_of_steps = _read(network, text, [[1] * size for size in SEGMENTS])
    if not _same(in_steps, at_once):
        yield "a segment that is read token by token gives other states than at once; `rows` is for its first step"
    elif not all(map(_same_slots, states_of_steps, states)):
        yield "a segment that is read token by token leaves other slots than at once; `leaves` is asked in each step"
    loaded = MemoryState.from_state_dict(states[0].state_dict())
    if not _same(_read(network, text[1:], [[size] for size in SEGMENTS[1:]], loaded)[0], at_once[1:]):
        yield "after saving and loading its state it reads on otherwise; all that it knows must be in its slots"
    yield from _rows(network, text, at_once)


@torch.no_grad()
def _read(
    network: Decoder, text: Sequence[Tensor], steps: Sequence[Sequence[int]], state: MemoryState | None = None
) -> tuple[list[Tensor], list[MemoryState]]:
    """Return the hidden states of each segment, which is read in steps of these sizes, and the states after them."""
    hidden: list[Tensor] = []
    states: list[MemoryState] = []
    for ids, sizes in zip(text, steps, strict=True):
        segment = network.open_segment(state, keep=True)
        pieces: list[Tensor] = []
        for piece in torch.split(ids, list(sizes), 1):
            step = network.read_segment(segment, piece)
            pieces.append(step.hidden)
            segment = step.segment
        state = segment.close()
        hidden.append(torch.cat(pieces, 1))
        states.append(state)
    return hidden, states


def _rows(network: Decoder, text: Sequence[Tensor], at_once: Sequence[Tensor]) -> Iterator[str]:
    """Read a row beside one that has fewer tokens in each segment, and compare both with each alone."""
    state, alone = None, None
    for ids, expected, shorter in zip(text, at_once, SHORTER, strict=True):
        padding = torch.arange(ids.shape[1]) >= torch.tensor([[ids.shape[1]], [shorter]])
        try:
            output = network(ids, memory=state, key_padding_mask=padding)
        except BadInput:  # a memory may refuse rows of unequal lengths
            return
        short = network(ids[1:, :shorter], memory=alone)
        state, alone = output.memory, short.memory
        if not _same([output.hidden[0], output.hidden[1, :shorter]], [expected[0], short.hidden[0]]):
            yield (
                "a row is read otherwise beside one of another length: choose and change slots row by row, by valid_BS"
                " in `survivors` and by the state's valid_BM, and keep all tokens of a row that has fewer than slots"
            )
            return


def _same_slots(state: MemoryState, expected: MemoryState) -> bool:
    return _same([state.slots[name] for name in expected.slots], list(expected.slots.values()))


def _same(tensors: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(
        one.shape == other.shape and difference(one, other) <= CLOSE
        for one, other in zip(tensors, expected, strict=True)
    )
