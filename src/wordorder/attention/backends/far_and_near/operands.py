"""The tensors of a call of attention by far and near parts, and their gradients."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention.backends.far_and_near.regions import Region


class Operands(NamedTuple):
    """The tensors of a call, or their gradients in at least float32."""

    q: Tensor
    k: Tensor
    v: Tensor
    ends: Tensor | None
    """(H, X), see `Prepared`."""
    a: Tensor | None
    """Factors of low rank, of queries (1 or B, H, T, R) and of keys (1 or B, H, S, R)."""
    c: Tensor | None
    left_a: Tensor | None
    """The same of what terms by content are on the left, where each is one number for a query or for a key."""
    left_c: Tensor | None
    right_a: Tensor | None
    right_c: Tensor | None
    near: tuple[Tensor, ...] = ()
    """Terms by content in the band, as tiles take them."""

    @classmethod
    def of(cls, tensors: Sequence[Tensor | None]) -> "Operands":
        """Return those of `flat`."""
        return cls(*cast("tuple[Any, ...]", tensors[:10]), near=cast("tuple[Tensor, ...]", tuple(tensors[10:])))

    def flat(self) -> tuple[Tensor | None, ...]:
        """Return all tensors in a row."""
        return *self[:10], *self.near

    def of_heads(self, heads: slice) -> "Operands":
        """Return those of some heads, without the band's; all but the table have heads on the second axis."""
        ends = None if self.ends is None else self.ends[heads]
        factors = [None if x is None else x[:, heads] for x in self.flat()[4:10]]
        return Operands.of([self.q[:, heads], self.k[:, heads], self.v[:, heads], ends, *factors])

    def factors(self, side: int | None) -> list[tuple[Tensor, Tensor]]:
        """Return the terms of low rank of the regions on a side, or of the band (None), of queries and of keys."""
        sides = {None: (None, None), 0: (self.left_a, self.left_c), 1: (self.right_a, self.right_c)}
        return [(a, c) for a, c in ((self.a, self.c), sides[side]) if a is not None and c is not None]

    def with_factors(self, scale: float, side: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries and keys with the channels of the factors, [q, a / scale] and [k, c], and values."""
        q, k = self.q, self.k
        if factors := self.factors(side):
            batch = q.shape[0]
            q = torch.cat((q, *((a / scale).to(q.dtype).expand(batch, -1, -1, -1) for a, _ in factors)), dim=-1)
            k = torch.cat((k, *(c.to(k.dtype).expand(batch, -1, -1, -1) for _, c in factors)), dim=-1)
        return q, k, self.v

    def widened(self, scale: float, side: int, *, multiple: int, spare: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values with one number of channels: those of the factors, then zeros.

        Args:
            scale: the factor on q.k.
            side: of the region.
            multiple: the number of channels is a multiple of it.
            spare: at least so many zeros are behind the values.
        """
        q, k, v = self.with_factors(scale, side)
        channels = max(q.shape[-1], v.shape[-1] + spare)
        channels += -channels % multiple
        return widened_to(q, channels, multiple), widened_to(k, channels, multiple), widened_to(v, channels, multiple)

    def constant(self, region: Region) -> Tensor | float:
        """Return the table's number in a region, (H, 1)."""
        return 0.0 if self.ends is None else self.ends[:, -region.side, None]


def widened_to(x: Tensor, channels: int, multiple: int) -> Tensor:
    """Return rows with zeros behind them, of channels side by side that begin at a multiple: kernels read no others."""
    if x.shape[-1] < channels:
        return F.pad(x, (0, channels - x.shape[-1]))
    is_aligned = x.stride(-1) == 1 and not any(stride % multiple for stride in x.stride()[:-1])
    return x if is_aligned else x.contiguous()
