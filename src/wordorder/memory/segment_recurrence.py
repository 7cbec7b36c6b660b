"""The memory of Transformer-XL: the states of earlier tokens, layer by layer, as further keys and values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, Unpack

import torch
from torch import Tensor

from wordorder.memory.state import LayerRecord, Memory, MemoryMeta, MemoryState


@dataclass(frozen=True, kw_only=True)
class RecurrenceState(MemoryState):
    """The state that `SegmentRecurrence` keeps between segments.

    Args:
        hidden: what each layer read, from the first to the last, each (B, M, C).
    """

    kind: ClassVar[str] = "segment-recurrence"
    hidden: tuple[Tensor, ...]

    @property
    def layers(self) -> int:
        return len(self.hidden)

    def slots(self) -> dict[str, Tensor]:
        return {f"hidden.{layer}": tensor for layer, tensor in enumerate(self.hidden)}

    @classmethod
    def from_slots(cls, slots: Mapping[str, Tensor], **meta: Unpack[MemoryMeta]) -> Self:
        names = [f"hidden.{layer}" for layer in range(len(slots))]
        if not slots or set(names) != set(slots):
            found = ", ".join(sorted(slots)) or "none of them"
            raise ValueError(f"segment recurrence keeps hidden.0, hidden.1, .., got {found}")
        return cls(hidden=tuple(slots[name] for name in names), **meta)


@dataclass(frozen=True)
class SegmentRecurrence(Memory):
    """Segment-level recurrence: each layer also attends to what it read from the segments before.

    Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860, Sec. 3.2, for layer l and segment tau::

        h~[tau] = [stop_gradient(h^(l-1)[tau-1]) ; h^(l-1)[tau]]
        q = W_q h^(l-1)[tau],   k = W_k h~[tau],   v = W_v h~[tau]

    So a network of L layers sees about L times ``length`` tokens back. It costs N (M + N) scores per layer, and the
    keys and values of M more tokens.

    Args:
        length: most slots, M: tokens that are kept; positive.
        same_length: every token sees at most ``length`` keys, the last ones, itself included, as the paper does for
            evaluation, instead of all that are there.

    Raises:
        ValueError: length is not a positive whole number, or same_length is not True or False.
    """

    name = "segment-recurrence"
    state_type = RecurrenceState
    same_length: bool = False

    @property
    def within(self) -> int | None:
        """Largest number of keys that a token sees, itself included; None = all that are there."""
        return self.length if self.same_length else None

    def with_slots(self, layer: int, x_BTC: Tensor, state: MemoryState) -> Tensor:
        """Return the slots' states of this layer, and the tokens' behind them."""
        assert isinstance(state, RecurrenceState)
        return torch.cat((state.hidden[layer].type_as(x_BTC), x_BTC), dim=1)

    def kept(self, layer: int, x_BTC: Tensor, record: LayerRecord) -> dict[str, Tensor]:
        """Return what the layer reads of the tokens."""
        del record
        return {f"hidden.{layer}": x_BTC.detach()}
