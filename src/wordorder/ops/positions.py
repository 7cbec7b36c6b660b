"""Positions as typed values, so that fast paths are chosen without looking at what a tensor contains."""

from dataclasses import dataclass

import torch
from torch import Tensor

from wordorder.errors import BadInput


@dataclass(frozen=True)
class Contiguous:
    """Contiguous positions: token t of example b stands at position ``offset_b + t``.

    Args:
        length: tokens per example, T.
        offset: position of token 0 (an int for all examples, or a long tensor (B,) with one per example;
            negative where the example is padded on the left).

    Raises:
        BadInput: there is no token, or the offset is not an integer or an integer tensor (B,).
    """

    length: int
    offset: int | Tensor = 0

    def __post_init__(self) -> None:
        _check_length(self.length)
        if isinstance(self.offset, Tensor):
            _check_integers("offset", self.offset, "(batch,)", axes=(1,))
        elif isinstance(self.offset, float):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput(f"offset must be an integer, or an integer tensor (batch,), got {self.offset}")

    def index_BT(self, device: torch.device | None = None) -> Tensor:
        """Return the positions as long (1 or B, T)."""
        if isinstance(self.offset, Tensor):
            offset_B = self.offset.to(device)
            return offset_B[:, None] + torch.arange(self.length, device=offset_B.device)
        return (torch.arange(self.length, device=device) + self.offset)[None]


@dataclass(frozen=True)
class Packed:
    """Several sequences in one row, which never see each other.

    Args:
        position_BT: position within its own sequence, long (B, T).
        sequence_BT: which sequence of the row a token belongs to, long (B, T).

    Raises:
        BadInput: one of them is not an integer tensor (B, T), there is no token, or their shapes differ.
    """

    position_BT: Tensor
    sequence_BT: Tensor

    def __post_init__(self) -> None:
        _check_integers("positions", self.position_BT, "(batch, T)", axes=(2,))
        _check_integers("sequence_BT", self.sequence_BT, "(batch, T)", axes=(2,))
        _check_length(self.length)
        if self.position_BT.shape != self.sequence_BT.shape:
            shapes = f"{tuple(self.position_BT.shape)} and {tuple(self.sequence_BT.shape)}"
            raise BadInput(f"position_BT and sequence_BT must have one shape (batch, tokens), got {shapes}")

    @property
    def length(self) -> int:
        """Number of tokens per row, T."""
        return self.position_BT.shape[1]

    def index_BT(self, device: torch.device | None = None) -> Tensor:
        """Return the positions as long (B, T)."""
        return self.position_BT.to(device)


@dataclass(frozen=True)
class Arbitrary:
    """Positions given token by token, long (B or 1, T); nothing else is known of them.

    Raises:
        BadInput: they are not an integer tensor (B or 1, T), or there is no token.
    """

    position_BT: Tensor

    def __post_init__(self) -> None:
        _check_integers("positions", self.position_BT, "(batch, T)", axes=(2,))
        _check_length(self.length)

    @property
    def length(self) -> int:
        """Number of tokens per example, T."""
        return self.position_BT.shape[1]

    def index_BT(self, device: torch.device | None = None) -> Tensor:
        """Return the positions as long (B or 1, T)."""
        return self.position_BT.to(device)


Positions = Contiguous | Packed | Arbitrary

PositionsLike = Positions | Tensor
"""Argument of `as_positions`: typed positions, or a tensor (T,) or (B, T) of integers."""


def as_positions(positions: PositionsLike | int) -> Positions:
    """Accept a plain tensor (T,) or (B, T) of integers, or a number of tokens, where typed positions are asked for.

    Raises:
        BadInput: neither typed positions nor a tensor; or the tensor is not of integers, has neither one nor two axes,
            or has no token.
    """
    if isinstance(positions, (Contiguous, Packed, Arbitrary)):
        return positions
    if isinstance(positions, int) and not isinstance(positions, bool):
        return Contiguous(positions)
    _check_integers("positions", positions, "(T,) or (batch, T)", axes=(1, 2))
    assert isinstance(positions, Tensor)
    return Arbitrary(positions if positions.dim() == 2 else positions[None])


def device_of(*positions: Positions) -> torch.device | None:
    """Return the device of the first tensor among them; None where all are plain numbers."""
    for given in positions:
        tensor = given.offset if isinstance(given, Contiguous) else given.position_BT
        if isinstance(tensor, Tensor):
            return tensor.device
    return None


def check_positions_fit(name: str, positions: Positions, batch: int, length: int) -> None:
    """Refuse positions of another number of tokens or rows, which some encodings would broadcast.

    Args:
        batch: examples, B.
        length: tokens per example, T.

    Raises:
        BadInput: they are not those of T tokens in 1 or B rows.
    """
    if isinstance(positions, Contiguous):
        rows = positions.offset.shape[0] if isinstance(positions.offset, Tensor) else 1
    else:
        rows = positions.position_BT.shape[0]
    if positions.length != length or rows not in (1, batch):
        raise BadInput(
            f"{name} must be ({length},), (1, {length}) or ({batch}, {length}), one for each token of {batch} rows, got"
            f" ({rows}, {positions.length})"
        )


def _check_length(length: int) -> None:
    if length < 1:
        raise BadInput(f"positions must be of at least one token, got {length}; leave the empty text out")


def _check_integers(name: str, given: object, shape: str, *, axes: tuple[int, ...]) -> None:
    """Refuse a value that is not an integer tensor with one of these numbers of axes."""
    if not isinstance(given, Tensor):
        kind = type(given).__name__
        raise BadInput(f"{name} must be a tensor of integers, such as torch.arange(length), got {kind}")
    if given.dtype not in (torch.int64, torch.int32):  # narrower ones would overflow in distances
        narrow = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
        wanted = "int64 or int32" if narrow else "integers"
        raise BadInput(f"{name} must be {wanted}, got {given.dtype}; convert them with .long()")
    if given.dim() not in axes:
        raise BadInput(f"{name} must be {shape}, got shape {tuple(given.shape)}")


def shift_between(query: Positions, key: Positions) -> int | None:
    """Return ``position(key j) - position(query i) - (j - i)`` where it is one known number for all pairs, else None.

    A number says that the distance depends on j - i alone, so that what depends on distance is a Toeplitz matrix.
    """
    if not (isinstance(query, Contiguous) and isinstance(key, Contiguous)):
        return None
    if isinstance(query.offset, int) and isinstance(key.offset, int):
        return key.offset - query.offset
    return 0 if query.offset is key.offset else None


def distances_BTS(query: Positions, key: Positions, device: torch.device | None = None) -> Tensor:
    """Return the signed distances ``position(key) - position(query)``, long (1 or B, T, S)."""
    return key.index_BT(device)[:, None, :] - query.index_BT(device)[:, :, None]
