"""The near part: the band of diagonals in which terms depend on the distance, in tiles on CPUs, in blocks on GPUs."""

# torch's operators are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention.backends.far_and_near import band as blocks
from wordorder.attention.backends.far_and_near.band import Band
from wordorder.attention.backends.far_and_near.operands import Operands
from wordorder.attention.backends.far_and_near.regions import Prepared
from wordorder.attention.backends.tiles.bias import Kind, LowRankTiles, ToeplitzTiles
from wordorder.attention.backends.tiles.passes import Backward, Inputs, TileOptions, forward
from wordorder.attention.backends.tiles.tile import TileMask

MOST_SCORES = 2**28
"""Scores that blocks write out at a time: 1 GiB of float32."""


class Near(ABC):
    """The near part of a call, in at least float32."""

    @abstractmethod
    def forward(self, operands: Operands, scale: float) -> tuple[Tensor, Tensor]:
        """Return output (B, H, T, E) and log-sum-exp (B, H, T); a row that sees nothing near has 0 and -inf."""

    @abstractmethod
    def gradients(self, operands: Operands, scale: float, lse: Tensor, delta: Tensor, do: Tensor) -> Operands:
        """Return the gradients, given the log-sum-exp of all keys and ``delta = rowsum(do o) - dlse``."""


class NoNear(Near):
    """No key is near."""

    def forward(self, operands: Operands, scale: float) -> tuple[Tensor, Tensor]:
        q, v = operands.q, operands.v
        wide = torch.promote_types(q.dtype, torch.float32)
        return q.new_zeros(*q.shape[:3], v.shape[-1], dtype=wide), q.new_full(q.shape[:3], -torch.inf, dtype=wide)

    def gradients(self, operands: Operands, scale: float, lse: Tensor, delta: Tensor, do: Tensor) -> Operands:
        return _zeros(operands, lse.dtype)


class TiledBand(Near):
    """By the loops over tiles, which take terms by content too."""

    def __init__(self, tile_mask: TileMask, columns: slice, kinds: Sequence[Kind]) -> None:
        self.tile_mask, self.columns, self.kinds = tile_mask, columns, kinds

    def forward(self, operands: Operands, scale: float) -> tuple[Tensor, Tensor]:
        output, lse_BHT1 = forward(*self._of_tiles(operands, scale))
        return output, lse_BHT1[..., 0]

    def gradients(self, operands: Operands, scale: float, lse: Tensor, delta: Tensor, do: Tensor) -> Operands:
        options, inputs, tensors = self._of_tiles(operands, scale)
        near = Backward(
            options,
            inputs,
            tensors,
            kept=None,
            lse=_of_hidden_rows(lse)[..., None],
            delta=delta[..., None],
            grad_output=do,
            wanted=[True] * len(options.kinds),
        )
        gradients = iter(near.run()[3:])
        ends = None if operands.ends is None else cast("Tensor", next(gradients))[0, :, self.columns]
        factors = (None, None) if operands.a is None else (next(gradients), next(gradients))
        beyond = [None if x is None else torch.zeros_like(x) for x in operands.flat()[6:10]]
        return Operands.of([near.dq, near.dk, near.dv, ends, *factors, *beyond, *gradients])

    def _of_tiles(self, operands: Operands, scale: float) -> tuple[TileOptions, Inputs, list[Tensor]]:
        """Return options, inputs, and the tensors of the terms."""
        kinds: list[Kind] = []
        tensors: list[Tensor] = []
        if operands.ends is not None:
            kinds.append(Kind(ToeplitzTiles, 1))
            # numbers beyond the band are read, and hidden
            behind = self.tile_mask.queries + self.tile_mask.keys - 1 - self.columns.stop
            tensors.append(F.pad(operands.ends, (self.columns.start, max(behind, 0)))[None])
        if operands.a is not None and operands.c is not None:
            kinds.append(Kind(LowRankTiles, 2))
            tensors += [operands.a, operands.c]
        options = TileOptions(
            scale=scale,
            kinds=(*kinds, *self.kinds),
            tile_mask=self.tile_mask,
            rows_may_be_fully_masked=True,
            dropout=None,
            keep=False,
            return_lse=True,
        )
        return options, Inputs(operands.q, operands.k, operands.v), [*tensors, *operands.near]


class BlockedBand(Near):
    """By blocks of products, with dropout."""

    def __init__(self, band: Band, columns: slice, dropout: float) -> None:
        self.band, self.dropout = band, dropout
        first = band.lowest + band.queries - 1 - columns.start
        self.of_band = slice(first, first + band.span)
        self.seed = int(torch.randint(2**62, (), device="cpu").item()) if dropout else 0

    def forward(self, operands: Operands, scale: float) -> tuple[Tensor, Tensor]:
        parts = [
            blocks.forward(self.band, block, self._dropout(block, heads))
            for heads, block in self._blocks(operands, scale)
        ]
        return _cat([output for output, _ in parts]), _cat([lse for _, lse in parts])

    def gradients(self, operands: Operands, scale: float, lse: Tensor, delta: Tensor, do: Tensor) -> Operands:
        lse, channels = _of_hidden_rows(lse), operands.q.shape[-1]
        parts: list[list[Tensor | None]] = []
        for heads, block in self._blocks(operands, scale):
            part = blocks.backward(
                self.band,
                block,
                self._dropout(block, heads),
                scale,
                lse=lse[:, heads],
                delta=delta[:, heads],
                do=do[:, heads],
            )
            dk = self.band.summed(part.k)
            da = dc = ends = None
            if operands.a is not None and operands.c is not None:
                da = _over_examples(part.q[..., channels:] / scale, operands.a)
                dc = _over_examples(dk[..., channels:], operands.c)
            if operands.ends is not None:
                behind = operands.ends.shape[1] - self.of_band.stop
                ends = F.pad(self.band.sums(part.scores.sum((0, 2))), (self.of_band.start, behind))
            parts.append([part.q[..., :channels], dk[..., :channels], self.band.summed(part.v), ends, da, dc])
        q, k, v, ends, a, c = (None if part[0] is None else _cat([*part]) for part in zip(*parts, strict=True))
        return Operands.of([q, k, v, ends, a, c, None, None, None, None])

    def _dropout(self, block: blocks.Block, heads: slice) -> Tensor | None:
        """Return the factors of the weights of some heads; None without dropout."""
        return blocks.draw_dropout(block.scores, self.dropout, self.seed + heads.start) if self.dropout else None

    def _blocks(self, operands: Operands, scale: float) -> Iterator[tuple[slice, blocks.Block]]:
        """Yield as many heads at a time as `MOST_SCORES` allows."""
        batch, heads = operands.q.shape[:2]
        count = max(1, MOST_SCORES // (batch * self.band.blocks * blocks.ROWS * self.band.columns))
        for first in range(0, heads, count):
            some = slice(first, min(first + count, heads))
            q, k, v = operands.of_heads(some).with_factors(scale, side=None)
            numbers = None if operands.ends is None else operands.ends[some, self.of_band]
            yield some, blocks.blocks_of(self.band, q, k, v, numbers, scale)


def near_of(prepared: Prepared, kinds: Sequence[Kind], dropout: float) -> Near:
    """Return the near part of a call."""
    if prepared.near is None:
        return NoNear()
    if isinstance(prepared.near, Band):
        return BlockedBand(prepared.near, prepared.columns, dropout)
    return TiledBand(prepared.near, prepared.columns, kinds)


def _of_hidden_rows(lse: Tensor) -> Tensor:
    """Return the log-sum-exp with inf at rows that see nothing: exp(-inf - inf) = 0."""
    return lse.masked_fill(lse == -torch.inf, torch.inf)


def _zeros(operands: Operands, dtype: torch.dtype) -> Operands:
    """Return gradients of 0."""
    return Operands.of([None if x is None else torch.zeros_like(x, dtype=dtype) for x in operands.flat()])


def _cat(of_heads: list[Any]) -> Tensor:
    """Return what some heads have, as one tensor; the table's has heads on the first axis, all others on the second."""
    return of_heads[0] if len(of_heads) == 1 else torch.cat(of_heads, dim=0 if of_heads[0].dim() == 2 else 1)


def _over_examples(part: Tensor, total: Tensor) -> Tensor:
    """Return a part for examples that share a factor, or do not."""
    return part.sum(0, keepdim=True) if total.shape[0] == 1 else part
