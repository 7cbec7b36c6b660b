"""The tables of words as waves over positions, and the numbers that a token reads from them."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class WaveTables:
    """Tables of one dtype, each (V, D), or (1, D) where all words share it, or (V, 1) where all channels do.

    Args:
        amplitude: r.
        frequency: w, radians per token; None = no position (w = 0).
        phase: theta, radians, of any size; wrapped to (-pi, pi] where it is read. None = 0.
        decay: c, of which softplus is the rate of decay per token, which therefore is never negative; None = no decay.
        width: channels, D; None = those of the widest table.
    """

    amplitude: Tensor
    frequency: Tensor | None = None
    phase: Tensor | None = None
    decay: Tensor | None = None
    width: int | None = None

    def given(self) -> tuple[Tensor | None, ...]:
        """Return amplitude, frequency, phase and decay."""
        return (self.amplitude, self.frequency, self.phase, self.decay)

    @property
    def channels(self) -> int:
        """Number of channels, D."""
        return self.width or max(table.shape[1] for table in self.given() if table is not None)

    @property
    def wide(self) -> torch.dtype:
        """Dtype of angles: float64 for float64, else float32."""
        return torch.promote_types(self.amplitude.dtype, torch.float32)

    def rows(self, table: Tensor, ids_BT: Tensor) -> Tensor:
        """Return a table's rows in the precision of angles, (B, T, D or 1), or (1, 1, D) where all words share them."""
        rows = table[None] if table.shape[0] == 1 else F.embedding(ids_BT, table)
        return rows.to(self.wide)

    def steps(self, position_BT: Tensor) -> Tensor:
        """Return the positions in the precision of angles, (B or 1, T, 1)."""
        return position_BT.to(self.wide)[..., None]

    def angle(self, ids_BT: Tensor, position_BT: Tensor) -> Tensor:
        """Return ``w p + theta``: a new tensor, broadcastable to (B, T, D) and as small as sharing allows."""
        phase = None if self.phase is None else wrap_phase(self.rows(self.phase, ids_BT))
        if self.frequency is None:
            return self.amplitude.new_zeros(1, 1, 1, dtype=self.wide) if phase is None else phase
        frequency, steps = self.rows(self.frequency, ids_BT), self.steps(position_BT)
        return frequency * steps if phase is None else torch.addcmul(phase, frequency, steps)

    def damping(self, ids_BT: Tensor, position_BT: Tensor) -> Tensor | None:
        """Return ``exp(-softplus(c) max(p, 0))``, at most 1; None where nothing decays."""
        if self.decay is None:
            return None
        return torch.exp(-F.softplus(self.rows(self.decay, ids_BT)) * self.steps(position_BT).clamp(min=0))

    def modulus(self, ids_BT: Tensor, position_BT: Tensor) -> Tensor:
        """Return ``r exp(-softplus(c) max(p, 0))``, broadcastable to (B, T, D)."""
        amplitude, damping = self.rows(self.amplitude, ids_BT), self.damping(ids_BT, position_BT)
        return amplitude if damping is None else amplitude * damping


def wrap_phase(phase: Tensor) -> Tensor:
    """Wrap angles of any shape to (-pi, pi], with gradient 1; angles that lie there already are not changed."""
    turn = 2 * torch.pi
    turns = (phase.detach() - torch.pi).div_(turn).ceil_()
    return torch.sub(phase, turns, alpha=turn)


def plain_waves(
    token_ids_BT: Tensor, position_BT: Tensor, tables: WaveTables, *, padding_idx: int | None = None
) -> tuple[Tensor, Tensor]:
    """Compute `waves` as the formula stands: for compilers, exporters and second derivatives."""
    angle = tables.angle(token_ids_BT, position_BT)
    modulus = tables.modulus(token_ids_BT, position_BT)
    if padding_idx is not None:
        modulus = modulus.masked_fill((token_ids_BT == padding_idx)[..., None], 0)
    shape, dtype = (*token_ids_BT.shape, tables.channels), tables.amplitude.dtype
    return (modulus * angle.cos()).to(dtype).expand(shape), (modulus * angle.sin()).to(dtype).expand(shape)
