"""Recurrence within a layer: each layer remembers its own output."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from wordorder.attention import Record
from wordorder.memory.segment_recurrence import SegmentRecurrence

if TYPE_CHECKING:
    from wordorder.memory.segment import Step


@dataclass(frozen=True)
class SameLayerRecurrence(SegmentRecurrence):
    """Segment recurrence whose layers attend to what they themselves gave for the segments before.

    Ding et al. 2021, "ERNIE-Doc", https://arxiv.org/abs/2012.15688, Sec. 3.3 (enhanced recurrence), which LaMemo's code
    has as the switch ``enhance_recurrence``; for layer l and segment tau::

        h~[tau] = [stop_gradient(h^(l)[tau-1]) ; h^(l-1)[tau]]
        q = W_q h^(l-1)[tau],   k = W_k h~[tau],   v = W_v h~[tau]

    What a layer has found in one segment it reads in the next one, so that in a text of many segments every layer
    reaches as far back as the text does. Cost as in `SegmentRecurrence`.

    Args:
        length: most slots, M: tokens that are kept; positive.
        same_length: every token sees at most ``length`` keys, as in `SegmentRecurrence`.

    Raises:
        ValueError: length is not a positive whole number, or same_length is not True or False.
    """

    name = "same-layer"

    def leaves(self, layer: int, x_BTC: Tensor, out_BTC: Tensor, record: Record, step: "Step") -> dict[str, Tensor]:
        """Return what the layer gives for the tokens."""
        del x_BTC, record
        return {f"hidden.{layer}": out_BTC[:, -step.tokens :].detach()}
