"""Check in seconds, in tiny decoders, that a memory can be read in steps, saved, and read in rows of two lengths.

A memory that is right only where a segment is read at once trains well and generates nonsense, without an error.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from wordorder.errors import BadInput
from wordorder.memory import Memory, MemoryState
from wordorder.networks.decoder import Decoder

LENGTH, SEGMENTS, SHORTER = 5, [4, 3, 6], [2, 1, 5]
"""Slots, tokens of the segments, and of those of a shorter row, which has room for all of its tokens at first."""
CLOSE = 1e-9
"""Largest difference of two float64 outputs that count as equal."""


def check_memory(memory: type[Memory]) -> list[str]:
    """Return the faults of a memory, tried with five slots, each with its remedy; none = it may be trained."""
    with cast("Any", torch.random).fork_rng(devices=[]):  # torch leaves its type open
        torch.default_generator.manual_seed(0)
        try:
            network = Decoder(23, width=24, layers=2, heads=4, encoding="rope", dropout=0.0, memory=memory(LENGTH))
            network = network.double().eval()
            text = torch.split(torch.randint(1, 23, (2, sum(SEGMENTS))), SEGMENTS, 1)
            at_once, states = _read(network, text, [[size] for size in SEGMENTS])
            return [
                *_lengths(states),
                *_steps(network, text, at_once, states),
                *_saved(network, text, at_once, states),
                *_rows(network, text, at_once),
            ]
        except Exception as error:  # whatever somebody's code raises
            return [f"it raised {type(error).__name__}: {error}"]


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


def _lengths(states: Sequence[MemoryState]) -> list[str]:
    most = max(state.length for state in states)
    return [f"it keeps {most} slots, and has a length of {LENGTH}"] if most > LENGTH else []


def _steps(
    network: Decoder, text: Sequence[Tensor], at_once: Sequence[Tensor], states: Sequence[MemoryState]
) -> list[str]:
    hidden, in_steps = _read(network, text, [[1] * size for size in SEGMENTS])
    if not _same(hidden, at_once):
        return ["a segment that is read token by token gives other states than at once; `rows` is for its first step"]
    pairs = zip(states, in_steps, strict=True)
    if not all(_same([*one.slots.values()], [other.slots[name] for name in one.slots]) for one, other in pairs):
        return ["a segment that is read token by token leaves other slots than at once; `leaves` is asked in each step"]
    return []


def _saved(
    network: Decoder, text: Sequence[Tensor], at_once: Sequence[Tensor], states: Sequence[MemoryState]
) -> list[str]:
    loaded = MemoryState.from_state_dict(states[0].state_dict())
    hidden, _ = _read(network, text[1:], [[size] for size in SEGMENTS[1:]], loaded)
    if _same(hidden, at_once[1:]):
        return []
    return ["after saving and loading its state it reads on otherwise; all that it knows must be in its slots"]


def _rows(network: Decoder, text: Sequence[Tensor], at_once: Sequence[Tensor]) -> list[str]:
    """Read a row beside one that has fewer tokens in each segment, and compare both with each alone."""
    state, alone = None, None
    for ids, expected, shorter in zip(text, at_once, SHORTER, strict=True):
        padding = torch.arange(ids.shape[1]) >= torch.tensor([[ids.shape[1]], [shorter]])
        try:
            output = network(ids, memory=state, key_padding_mask=padding)
        except BadInput:  # a memory may refuse rows of unequal lengths
            return []
        short = network(ids[1:, :shorter], memory=alone)
        state, alone = output.memory, short.memory
        if not _same([output.hidden[0], output.hidden[1, :shorter]], [expected[0], short.hidden[0]]):
            return [
                "a row is read otherwise beside one of another length: choose and change slots row by row, by valid_BS"
                " in `survivors` and by the state's valid_BM, and keep all tokens of a row that has fewer than slots"
            ]
    return []


def _same(tensors: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(
        one.shape == other.shape and (one - other).abs().max().item() <= CLOSE
        for one, other in zip(tensors, expected, strict=True)
    )
