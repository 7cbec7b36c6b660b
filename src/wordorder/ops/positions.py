"""Positions as typed values, so that fast paths are chosen without a look into tensors; distances; running sums."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from wordorder.errors import BadInput
from wordorder.ops.execution import may_be_read


@dataclass(frozen=True)
class Contiguous:
    """Contiguous positions: token t of example b stands at position ``offset_b + t``.

    Raises:
        BadInput: there is no token, or the offset is not an integer or an integer tensor (B,).
    """

    length: int
    """Tokens per example, T."""
    offset: int | Tensor = 0
    """Position of token 0: one for all examples, or a long tensor (B,) with one for each; negative where the example is
    padded on the left."""

    def __post_init__(self) -> None:
        if type(self.length) is not int or self.length < 1:
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
class _InTensor:
    """The base of positions given token by token."""

    position_BT: Tensor

    def __post_init__(self) -> None:
        _check_integers("positions", self.position_BT, "(batch, T)", axes=(2,))
        _check_length(self.length)

    @property
    def length(self) -> int:
        """Number of tokens per row, T."""
        return self.position_BT.shape[1]

    def index_BT(self, device: torch.device | None = None) -> Tensor:
        """Return the positions as long (1 or B, T)."""
        return self.position_BT.to(device)


@dataclass(frozen=True)
class Packed(_InTensor):
    """Several sequences in one row, which never see each other; positions (B, T) are those within the own sequence.

    Raises:
        BadInput: one of the tensors is not an integer tensor (B, T), there is no token, or their shapes differ.
    """

    sequence_BT: Tensor
    """The sequence of the row that each token belongs to, long (B, T)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_integers("sequence_BT", self.sequence_BT, "(batch, T)", axes=(2,))
        if self.position_BT.shape != self.sequence_BT.shape:
            shapes = f"{tuple(self.position_BT.shape)} and {tuple(self.sequence_BT.shape)}"
            raise BadInput(f"position_BT and sequence_BT must have one shape (batch, tokens), got {shapes}")


class Arbitrary(_InTensor):
    """Positions given token by token, long (B or 1, T); nothing else is known of them.

    Raises:
        BadInput: they are not an integer tensor (B or 1, T), or there is no token.
    """


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


def check_positions_fit(name: str, positions: Positions, batch: int, length: int) -> None:
    """Refuse positions that are not those of ``length`` tokens in 1 or ``batch`` rows; some encodings would broadcast.

    Raises:
        BadInput: they are of another number of tokens or rows.
    """
    rows = _rows(positions)
    if positions.length != length or rows not in (1, batch):
        raise BadInput(
            f"{name} must be ({length},), (1, {length}) or ({batch}, {length}), one for each token of {batch} rows, got"
            f" ({rows}, {positions.length})"
        )


def check_rows_agree(query_name: str, query: Positions, key_name: str, key: Positions) -> None:
    """Refuse positions of queries and keys that are those of different numbers of examples.

    Raises:
        BadInput: they have different numbers of rows, and neither has 1.
    """
    rows = _rows(query), _rows(key)
    if 1 not in rows and rows[0] != rows[1]:
        raise BadInput(
            f"{query_name} and {key_name} must have as many rows as each other, or 1, got {rows[0]} and {rows[1]}"
        )


def _rows(positions: Positions) -> int:
    if isinstance(positions, Contiguous):
        return positions.offset.shape[0] if isinstance(positions.offset, Tensor) else 1
    return positions.position_BT.shape[0]


def _check_length(length: int) -> None:
    if isinstance(length, float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(f"length must be a whole number of tokens, got {length}")
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


def diagonal_distances(queries: int, keys: int, shift: int | Tensor, device: torch.device | None = None) -> Tensor:
    """Return ``position(key) - position(query)`` of each diagonal of the scores, ascending, long (W,).

    There are W = T + S - 1 of them for T contiguous queries and S contiguous keys. ``shift`` is that of
    `shift_between`; one per example, (B, 1), gives (B, W).
    """
    return torch.arange(1 - queries, keys, device=device) + shift


def diagonals_not_to_the_right(queries: int, keys: int, shift: int) -> int:
    """Return the number of diagonals, the first ones, that hold keys at their query's position or before it."""
    return min(max(queries - shift, 0), queries + keys - 1)


def t5_bucket(distance: Tensor, *, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> Tensor:
    """Return the bucket number of ``distance = key position - query position``, as in T5 and TUPE-R.

    Raffel et al. 2020, "Exploring the limits of transfer learning with a unified text-to-text transformer",
    https://arxiv.org/abs/1910.10683, Sec. 2.1. With n = |distance| and ``half`` buckets per direction, the first
    half / 2 buckets are exact and the others grow with the logarithm::

        n <  half/2:  n
        n >= half/2:  min(half/2 + floor(log(n / (half/2)) / log(max_distance / (half/2)) * (half/2)), half - 1)

    plus ``half`` where the key stands to the right of its query. With ``bidirectional=False`` (decoders) all buckets
    serve the left side and every key to the right counts as distance 0.

    The borders are computed once in exact float64 and looked up, not by taking a float32 logarithm of each distance:
    16, 32 and 64 then fall where the formula puts them on every device.

    Args:
        distance: integers of any shape.
        buckets: how many buckets in all; where bidirectional even and at least 4, else at least 2.
        max_distance: from here on everything shares the last bucket; greater than half of the buckets of a direction.
        bidirectional: whether left and right have buckets of their own.

    Returns:
        long, shaped like distance, in 0 .. buckets - 1.

    Raises:
        ValueError: an argument is out of range.
    """
    half = buckets // 2 if bidirectional else buckets
    exact = half // 2
    if exact < 1 or (bidirectional and buckets % 2):
        least = "even and at least 4" if bidirectional else "at least 2"
        raise ValueError(f"buckets must be {least}, got {buckets}")
    if max_distance <= exact:
        raise ValueError(f"max_distance must be greater than {exact} for {buckets} buckets, got {max_distance}")
    growth = math.log(max_distance / exact) / (half - exact)
    # the smallest distance of each bucket, that of the next one where it is empty; the small number keeps a border that
    # is a whole number (16, 32, 64) from being lifted to the next one by rounding
    first = [*range(exact), *[math.ceil(exact * math.exp(growth * i) - 1e-9) for i in range(half - exact)]]
    far = distance.abs() if bidirectional else (-distance).clamp(min=0)
    bucket = torch.bucketize(far, torch.tensor(first, device=distance.device), right=True) - 1
    return bucket + half * (distance > 0) if bidirectional else bucket


def last_positions(positions: Positions, count: int) -> Positions:
    """Return the positions of the last tokens of a text; of packed ones there is no last."""
    before = positions.length - count
    if isinstance(positions, Contiguous):
        return Contiguous(count, positions.offset + before)
    assert isinstance(positions, Arbitrary)
    return Arbitrary(positions.position_BT[:, before:])


def gather_tokens(x: Tensor, column_BT: Tensor, axis: int = 1) -> Tensor:
    """Return the columns ``column_BT`` of each row, (B, any number), along the axis of x that counts tokens."""
    index = column_BT.view(column_BT.shape[0], *(-1 if a == axis else 1 for a in range(1, x.dim())))
    return x.gather(axis, index.expand(*x.shape[:axis], -1, *x.shape[axis + 1 :]))


def check_within_table(positions: Positions, limit: int) -> None:
    """Raise ValueError where positions leave a learned table of ``limit`` rows.

    Positions in tensors are looked at only where `may_be_read` allows it.
    """
    if isinstance(positions, Contiguous) and isinstance(positions.offset, int):
        lowest, highest = positions.offset, positions.offset + positions.length - 1
    else:
        index_BT = positions.index_BT()
        if not may_be_read(index_BT) or index_BT.numel() == 0:
            return
        # left padding has negative positions, which nobody sees
        lowest = 0 if isinstance(positions, Contiguous) else int(index_BT.min())
        highest = int(index_BT.max())
    if highest >= limit:
        raise ValueError(
            f"position {highest} lies beyond the learned table of max_positions={limit}; shorten the text to {limit}"
            " tokens, or build the network with a larger max_positions (Hugging Face models: max_position_embeddings),"
            " or with an encoding without a table"
        )
    if lowest < 0:
        raise ValueError(f"positions must not be negative for a learned table, got {lowest}; those of padding may be 0")


def table_rows(positions: Positions, limit: int, device: torch.device | None, *, first_row: int = 0) -> Tensor:
    """Return the row of each position in a learned table, ``first_row + position``, long (1 or B, T)."""
    check_within_table(positions, limit)
    return positions.index_BT(device).clamp(min=0) + first_row


def running_sum(x_BHS: Tensor, key: Positions | None) -> Tensor:
    """Return the sums over a text up to each token, in the order of positions (B, H, S); None = that of the columns.

    In packed texts the sums go on from one text to the next: differences within one are right.
    """
    if not isinstance(key, Arbitrary):
        return x_BHS.cumsum(-1)
    order_BHS = key.index_BT(x_BHS.device).argsort(dim=-1, stable=True)[:, None].expand(x_BHS.shape)
    return torch.zeros_like(x_BHS).scatter(-1, order_BHS, x_BHS.gather(-1, order_BHS).cumsum(-1))
