"""The memory of Transformer-XL: the states of earlier tokens, layer by layer, as further keys and values."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wordorder.attention import Record
from wordorder.memory.memory import Memory

if TYPE_CHECKING:
    from wordorder.memory.segment import Step


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
    same_length: bool = False

    def slot_shapes(self, layers: int, *, channels: int, heads: int) -> dict[str, tuple[int, ...]]:
        """Return "hidden.0" and so on: what each layer read."""
        del heads
        return {f"hidden.{layer}": (channels,) for layer in range(layers)}

    @property
    def window(self) -> int | None:
        return self.length if self.same_length else None

    def rows(self, layer: int, x_BTC: Tensor, step: "Step") -> Tensor:
        """Return the slots' states of this layer, and the tokens' behind them."""
        assert step.segment.state is not None
        return torch.cat((step.segment.state.slots[f"hidden.{layer}"].type_as(x_BTC), x_BTC), dim=1)

    def leaves(self, layer: int, x_BTC: Tensor, out_BTC: Tensor, record: Record, step: "Step") -> dict[str, Tensor]:
        """Return what the layer reads of the tokens."""
        del out_BTC, record, step
        return {f"hidden.{layer}": x_BTC.detach()}
