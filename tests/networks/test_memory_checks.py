"""`check_memory` finds nothing in the package's memories and in `fading.py`, and each fault of a wrong one."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from wordorder.memory import MEMORIES, FirstTokensRecurrence, SegmentRecurrence
from wordorder.networks import check_memory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contribution"))
from fading import FadingMemory


@pytest.mark.parametrize("memory", [*MEMORIES.values(), FadingMemory], ids=lambda kind: kind.name)
def test_it_has_no_fault(memory):
    assert check_memory(memory) == []


@dataclass(frozen=True)
class FirstStepOnly(SegmentRecurrence):
    """What it leaves is right where a segment is read at once."""

    name = "first-step-only"

    def leaves(self, layer, x_BTC, out_BTC, record, step):
        left = super().leaves(layer, x_BTC, out_BTC, record, step)
        return {name: (0.5 if step.segment.tokens else 1) * tensor for name, tensor in left.items()}


@dataclass(frozen=True)
class AcrossRows(SegmentRecurrence):
    """A row's slots depend on the other rows."""

    name = "across-rows"

    def leaves(self, layer, x_BTC, out_BTC, record, step):
        return {f"hidden.{layer}": x_BTC.mean(0, keepdim=True).expand_as(x_BTC).detach()}


@dataclass(frozen=True)
class ThinsAllRows(SegmentRecurrence):
    """It thins rows that would have room for all of their tokens, if a longer one stands beside them."""

    name = "thins-all-rows"

    def survivors(self, state):
        return slice(max(state.length - 2 * self.length + 1, 0), state.length, 2)


@dataclass(frozen=True)
class EmptyForTokens(FirstTokensRecurrence):
    """It keeps the first columns, whether they hold a token or not."""

    name = "empty-for-tokens"

    def survivors(self, state):
        return super().survivors(replace(state, valid_BM=None))


@dataclass(frozen=True)
class BrokenRows(SegmentRecurrence):
    name = "broken-rows"

    def survivors(self, state):
        if state.valid_BM is not None:
            _a, _b = (1, 2, 3)
        return super().survivors(state)


@dataclass(frozen=True)
class ThinsInLeaves(SegmentRecurrence):
    name = "thins-in-leaves"

    def leaves(self, layer, x_BTC, out_BTC, record, step):
        return {name: tensor[:, ::2] for name, tensor in super().leaves(layer, x_BTC, out_BTC, record, step).items()}


@dataclass(frozen=True)
class TooMany(SegmentRecurrence):
    name = "too-many"

    def survivors(self, state):
        return slice(None)


@dataclass(frozen=True)
class Outside(SegmentRecurrence):
    """It knows something that is not in its slots."""

    name = "outside"
    known = {}  # noqa: RUF012

    def leaves(self, layer, x_BTC, out_BTC, record, step):
        self.known[layer] = x_BTC.shape[0]
        return super().leaves(layer, x_BTC, out_BTC, record, step)

    def rows(self, layer, x_BTC, step):
        slots = step.segment.state.slots[f"hidden.{layer}"]
        same = id(slots) == self.known.setdefault(f"slots.{layer}.{step.segment.position}", id(slots))
        return torch.cat((slots if same else 0 * slots, x_BTC), dim=1)


@dataclass(frozen=True)
class Broken(SegmentRecurrence):
    name = "broken"

    def rows(self, layer, x_BTC, step):
        raise KeyError("hidden")


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (FirstStepOnly, "token by token"),
        (ThinsAllRows, "keep all tokens of a row that has fewer than slots"),
        (EmptyForTokens, "a row is read otherwise beside one of another length"),
        (BrokenRows, "it raised ValueError: too many values to unpack"),
        (AcrossRows, "a row is read otherwise beside one of another length"),
        (ThinsInLeaves, "`leaves` of layer 0 gave 2 rows of hidden.0 for 4 tokens"),
        (TooMany, "it keeps 13 slots, and has a length of 5"),
        (Broken, "it raised KeyError: 'hidden'"),
    ],
    ids=lambda case: getattr(case, "name", ""),
)
def test_a_wrong_memory_is_told_what_is_wrong(memory, words):
    assert any(words in fault for fault in check_memory(memory))


def test_what_is_not_in_the_slots_is_found():
    assert any("after saving and loading its state" in fault for fault in check_memory(Outside))
