"""The band of near keys in blocks of matrix products, where loops over tiles would cost more than they save: on GPUs.

A block is ROWS queries and the keys that some of them see near, ROWS + span - 1 of them. Its scores are written out,
of so many heads at a time that they stay small, and computed again in the backward pass.
"""

# torch's operators are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = 128
"""Queries of a block: the products compute (ROWS + span) / span times the band."""


@dataclass(frozen=True, eq=False)
class Band:
    """The diagonals of near keys, key index less query index, and the keys that are tokens."""

    lowest: int
    highest: int
    queries: int
    keys: int
    tokens_BS: Tensor | None
    device: torch.device

    @property
    def span(self) -> int:
        """The number of diagonals."""
        return self.highest - self.lowest + 1

    @property
    def blocks(self) -> int:
        """The number of blocks, N."""
        return -(-self.queries // ROWS)

    @property
    def columns(self) -> int:
        """The number of keys of a block, K."""
        return ROWS + self.span - 1

    def of_queries(self, x_BHTD: Tensor) -> Tensor:
        """Return rows by block, (B, H, N, R, D), 0 behind the last query."""
        missing = self.blocks * ROWS - self.queries
        x_BHTD = F.pad(x_BHTD, (0, 0, 0, missing)) if missing else x_BHTD
        return x_BHTD.unflatten(2, (self.blocks, ROWS))

    def of_keys(self, x_BHSD: Tensor) -> Tensor:
        """Return the keys of each block, (B, H, N, K, D), 0 where there is none."""
        total = self.blocks * ROWS + self.span - 1
        padded: Tensor = F.pad(x_BHSD, (0, 0, -self.lowest, total + self.lowest - self.keys))
        return padded.unfold(2, self.columns, ROWS).transpose(-1, -2)

    def summed(self, part_BHNKD: Tensor) -> Tensor:
        """Return for each key the sum of what blocks have for it, (B, H, S, D): the adjoint of `of_keys`."""
        pieces = -(-self.columns // ROWS)
        batch, heads, blocks, _, width = part_BHNKD.shape
        summed = part_BHNKD.new_zeros(batch, heads, blocks + pieces - 1, ROWS, width)
        for piece in range(pieces):
            columns = part_BHNKD[:, :, :, piece * ROWS : (piece + 1) * ROWS]
            summed[:, :, piece : piece + blocks, : columns.shape[3]].add_(columns)
        summed = summed.flatten(2, 3)
        return F.pad(summed, (0, 0, self.lowest, self.keys - self.lowest - summed.shape[2]))

    @cached_property
    def hidden(self) -> Tensor:
        """True where a query does not see a key, bool (B or 1, 1, N, R, K)."""
        device = self.device
        column, row = torch.arange(self.columns, device=device), torch.arange(ROWS, device=device)[:, None]
        outside = (column < row) | (column >= row + self.span)
        tokens_BS = torch.ones(1, self.keys, dtype=torch.bool, device=device)
        tokens_BS = tokens_BS if self.tokens_BS is None else self.tokens_BS.to(device)
        return outside | ~self.of_keys(tokens_BS[:, None, :, None])[..., 0][..., None, :]

    def table(self, numbers_HX: Tensor) -> Tensor:
        """Return a table of numbers by diagonal, (H, span), as a block has it, (H, 1, R, K)."""
        block_HRK = numbers_HX.new_zeros(len(numbers_HX), ROWS, self.columns)
        self._diagonals(block_HRK).copy_(numbers_HX[:, None].expand(-1, ROWS, -1))
        return block_HRK[:, None]

    def sums(self, block_HRK: Tensor) -> Tensor:
        """Return the sum of each diagonal, (H, span), in an order that is always the same: the adjoint of `table`."""
        return self._diagonals(block_HRK.contiguous()).sum(1)

    def _diagonals(self, block_HRK: Tensor) -> Tensor:
        """Return a view (H, R, span) with columns by diagonal: a row begins one element later than the one before."""
        heads, rows, columns = block_HRK.shape
        return block_HRK.as_strided((heads, rows, self.span), (rows * columns, columns + 1, 1))


class Block(NamedTuple):
    """Some heads by block, and their scores (B, H, N, R, K) in at least float32, -inf where nothing is seen."""

    q: Tensor
    k: Tensor
    v: Tensor
    scores: Tensor


def blocks_of(band: Band, q: Tensor, k: Tensor, v: Tensor, numbers_HX: Tensor | None, scale: float) -> Block:
    """Return heads by block, with ``scale q.k`` plus the table's numbers by diagonal."""
    q, k, v = band.of_queries(q), band.of_keys(k), band.of_keys(v)
    scores = product(q, k.transpose(-1, -2)).mul_(scale)
    if numbers_HX is not None:
        scores += band.table(numbers_HX)
    return Block(q, k, v, scores.masked_fill_(band.hidden, -torch.inf))


def forward(band: Band, block: Block, dropout_BHNRK: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return output (B, H, T, E) and log-sum-exp (B, H, T); a row that sees nothing has 0 and -inf."""
    lse = block.scores.logsumexp(-1)
    weights = (block.scores - lse.masked_fill(lse == -torch.inf, 0)[..., None]).exp_()
    if dropout_BHNRK is not None:
        weights *= dropout_BHNRK
    output = product(weights.to(block.v.dtype), block.v)
    return output.flatten(2, 3)[:, :, : band.queries], lse.flatten(2, 3)[:, :, : band.queries]


class Gradients(NamedTuple):
    """The gradients of a block's queries, keys, values and scores."""

    q: Tensor
    k: Tensor
    v: Tensor
    scores: Tensor


def backward(
    band: Band,
    block: Block,
    dropout_BHNRK: Tensor | None,
    scale: float,
    *,
    lse: Tensor,
    delta: Tensor,
    do: Tensor,
) -> Gradients:
    """Return the gradients, given the log-sum-exp of all keys and ``delta = rowsum(do o) - dlse``, (B, H, T)."""
    lse, delta = (band.of_queries(x[..., None]) for x in (lse, delta))
    do, dtype = band.of_queries(do), block.q.dtype
    weights = (block.scores - lse).exp_()
    dropped = weights if dropout_BHNRK is None else weights * dropout_BHNRK
    dv = product(dropped.to(dtype).transpose(-1, -2), do)
    d_scores = product(do, block.v.transpose(-1, -2))
    if dropout_BHNRK is not None:
        d_scores *= dropout_BHNRK
    d_scores = d_scores.sub_(delta).mul_(weights)
    low = d_scores.to(dtype)
    dq = product(low, block.k).mul_(scale).flatten(2, 3)[:, :, : band.queries]
    dk = product(low.transpose(-1, -2), block.q).mul_(scale)
    return Gradients(dq, dk, dv, d_scores)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b`` in at least float32, by products of 16 bits where a GPU sums them in float32."""
    if a.dtype.itemsize > 2:
        return a @ b
    if not a.is_cuda:
        return a.float() @ b.float()
    bmm: Any = torch.bmm
    return bmm(a.flatten(0, 2), b.flatten(0, 2), out_dtype=torch.float32).unflatten(0, a.shape[:3])


def draw_dropout(scores: Tensor, dropout: float, seed: int) -> Tensor:
    """Draw factors of weights, 0 or 1 / (1 - dropout), the same for the same seed."""
    generator = torch.Generator(scores.device)
    generator.manual_seed(seed)
    drawn = torch.rand(scores.shape, generator=generator, device=scores.device)
    return (drawn >= dropout).to(scores.dtype) / (1 - dropout)
