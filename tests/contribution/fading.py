"""A memory in one file: segment recurrence whose slots fade."""

from dataclasses import dataclass

import torch
from torch import Tensor

from wordorder.attention import Record
from wordorder.memory import Memory, Step


@dataclass(frozen=True)
class FadingMemory(Memory):
    """Remember each layer's input, multiplied by ``keep`` with every segment that has passed."""

    name = "fading"
    keep: float = 0.9

    def slot_shapes(self, layers: int, *, channels: int, heads: int) -> dict[str, tuple[int, ...]]:
        return {f"hidden.{layer}": (channels,) for layer in range(layers)}

    def rows(self, layer: int, x_BTC: Tensor, step: Step) -> Tensor:
        return torch.cat((step.segment.state.slots[f"hidden.{layer}"].type_as(x_BTC), x_BTC), dim=1)

    def leaves(self, layer: int, x_BTC: Tensor, out_BTC: Tensor, record: Record, step: Step) -> dict[str, Tensor]:
        return {f"hidden.{layer}": x_BTC.detach()}

    def refreshed(self, layer: int, record: Record, step: Step) -> dict[str, Tensor]:
        name = f"hidden.{layer}"
        return {name: self.keep * step.segment.state.slots[name]} if step.reads_slots else {}
