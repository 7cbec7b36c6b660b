"""Positions as typed values, so that fast paths are chosen without looking at what a tensor contains."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Contiguous:
    """Token t of example b stands at position ``offset_b + t``.

    Args:
        length: tokens per example, T.
        offset: position of token 0 (an int for all examples, or a long tensor (B,) with one per example;
            negative where the example is padded on the left).
    """

    length: int
    offset: int | Tensor = 0

    def index_BT(self, device: torch.device | None = None) -> Tensor:
        """Positions as long (1 or B, T)."""
        steps_T = torch.arange(self.length, device=device)
        if isinstance(self.offset, Tensor):
            return self.offset.to(steps_T.device)[:, None] + steps_T
        return (steps_T + self.offset)[None]


@dataclass(frozen=True)
class Packed:
    """Several sequences in one row, which never see each other.

    Args:
        position_BT: position within its own sequence, long (B, T).
        sequence_BT: which sequence of the row a token belongs to, long (B, T).
    """

    position_BT: Tensor
    sequence_BT: Tensor

    @property
    def length(self) -> int:
        """Tokens per row, T."""
        return self.position_BT.shape[1]

    def index_BT(self, device: torch.device | None = None) -> Tensor:
        """Positions as long (B, T)."""
        return self.position_BT.to(device)


@dataclass(frozen=True)
class Arbitrary:
    """Positions given token by token, long (B or 1, T); nothing is known of them."""

    position_BT: Tensor

    @property
    def length(self) -> int:
        """Tokens per example, T."""
        return self.position_BT.shape[1]

    def index_BT(self, device: torch.device | None = None) -> Tensor:
        """Positions as long (B or 1, T)."""
        return self.position_BT.to(device)


Positions = Contiguous | Packed | Arbitrary


def as_positions(positions: Positions | Tensor) -> Positions:
    """Accept a plain tensor (T,) or (B, T) of integers where typed positions are asked for.

    Raises:
        ValueError: neither typed positions nor a tensor; or the tensor is not of integers, or has neither one nor two
            axes.
    """
    if isinstance(positions, (Contiguous, Packed, Arbitrary)):
        return positions
    if not isinstance(positions, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(positions).__name__
        raise ValueError(f"positions must be a tensor of integers, such as torch.arange(length), got {kind}")
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise ValueError(f"positions must be integers, got {positions.dtype}; convert them with .long()")
    if positions.dim() not in (1, 2):
        raise ValueError(f"positions must be (T,) or (batch, T), got shape {tuple(positions.shape)}")
    return Arbitrary(positions if positions.dim() == 2 else positions[None])


def shift_between(query: Positions, key: Positions) -> int | None:
    """``position(key j) - position(query i) - (j - i)`` where it is one known number for all pairs, else None.

    A number says that the distance depends on j - i alone, so that what depends on distance is a Toeplitz matrix.
    """
    if not (isinstance(query, Contiguous) and isinstance(key, Contiguous)):
        return None
    if isinstance(query.offset, int) and isinstance(key.offset, int):
        return key.offset - query.offset
    return 0 if query.offset is key.offset else None


def distances_BTS(query: Positions, key: Positions, device: torch.device | None = None) -> Tensor:
    """Signed distances ``position(key) - position(query)``, long (1 or B, T, S)."""
    return key.index_BT(device)[:, None, :] - query.index_BT(device)[:, :, None]
