"""Biases of one vector per distance: products with queries or with keys, shifted to where scores have them."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.ops.bias import Bias


def relative_shift(product_BHTW: Tensor, keys: int) -> Tensor:
    """Return ``shifted[i, j] = product[i, j - i + T - 1]``, (..., T, W) -> (..., T, S) with W = T + S - 1.

    The term ``q_i . r[j - i]`` of Transformer-XL (Dai et al. 2019, https://arxiv.org/abs/1901.02860, App. B) has one
    column per distance, j - i = -(T-1) .. S-1, where scores have one per key. Row i of the result begins W - 1 elements
    after row i - 1 does, where a row of the product begins W after: seen as rows of W - 1 elements, from element T - 1
    on, the columns stand in place. So the shift is a view: no padding, no gather, no copy.

    Raises:
        ValueError: W is not T + S - 1.
    """
    queries, width = product_BHTW.shape[-2:]
    if width != queries + keys - 1:
        raise ValueError(f"the last axis must be T + S - 1 = {queries + keys - 1} distances, got {width}")
    if torch.compiler.is_compiling():  # a further column keeps lengths symbolic: 2 N - 2 columns could be N of them
        product_BHTW, width = F.pad(product_BHTW, (0, 1)), width + 1
    elif queries == 1:
        return product_BHTW
    flat = product_BHTW.flatten(-2)[..., queries - 1 : queries - 1 + queries * (width - 1)]
    return flat.view(*flat.shape[:-1], queries, width - 1)[..., :keys]


@dataclass(frozen=True, eq=False)
class RelativeBias(Bias):
    """``bias[i, j] = query[i] . row[j - i + T - 1 - first]``: one vector per distance, met by every query.

    Raises:
        ValueError: there are rows beyond the T + S - 1 distances.
    """

    query_BHTD: Tensor
    """(B or 1, H, T, D)."""
    row_BHRD: Tensor
    """(B or 1, H, R, D), the vectors of R distances in a row; at all others the bias is 0."""
    keys: int
    first: int = field(default=0, kw_only=True)
    """The first of those distances, counted from j - i = -(T-1), the lowest there is."""
    edges: tuple[int, int] | None = field(default=None, kw_only=True)
    """Distances a and b, counted like ``first``: one vector up to a, one from b on, as in a `ToeplitzBias`."""

    def __post_init__(self) -> None:
        if self.first < 0 or self._missing < 0:
            raise ValueError(
                f"rows {self.first} .. {self.first + self.row_BHRD.shape[2] - 1} do not lie within the "
                f"{self.queries + self.keys - 1} distances of {self.queries} queries and {self.keys} keys"
            )

    @property
    def queries(self) -> int:
        """Number of queries, T."""
        return self.query_BHTD.shape[2]

    @property
    def _missing(self) -> int:
        """Number of distances after the last row."""
        return self.queries + self.keys - 1 - self.first - self.row_BHRD.shape[2]

    def constant(self, side: int) -> Tensor | None:
        """Return the bias up to the first edge (side 0) or from the second on (1), (B or 1, H, T); None = 0."""
        assert self.edges is not None
        edge, last = self.edges[side] - self.first, self.row_BHRD.shape[2] - 1
        row = max(edge, 0) if side else min(edge, last)  # beyond the edge any vector is that of the edge
        if not 0 <= row <= last:
            return None
        return (self.query_BHTD * self.row_BHRD[:, :, row, None]).sum(-1)

    def between(self, start: int, stop: int) -> "RelativeBias":
        """Return the bias with the distances from ``start`` to before ``stop`` alone, counted like ``first``."""
        last = self.first + self.row_BHRD.shape[2]
        start, stop = min(max(start, self.first), last), min(stop, last)
        rows_BHRD = self.row_BHRD[:, :, start - self.first : max(stop, start) - self.first]
        return replace(self, row_BHRD=rows_BHRD, first=start, edges=None)

    def dense(self) -> Tensor:
        # on a GPU the sums of the backward pass of gather would wait for each other
        if self.edges is not None and not self.row_BHRD.is_cuda and not torch.compiler.is_compiling():
            few = self.between(self.edges[0], self.edges[1] + 1)
            if 0 < 2 * few.row_BHRD.shape[2] < self.row_BHRD.shape[2]:
                return self._gathered(few)
        rows_BHWD = F.pad(self.row_BHRD, (0, 0, self.first, self._missing))
        return relative_shift(self.query_BHTD @ rows_BHWD.transpose(-1, -2), self.keys)

    def _gathered(self, few: "RelativeBias") -> Tensor:
        """Return the bias written out, of the products with the vectors from edge to edge."""
        rows, last = few.row_BHRD.shape[2], self.first + self.row_BHRD.shape[2] - 1
        product_BHTR = F.pad(self.query_BHTD @ few.row_BHRD.transpose(-1, -2), (0, 1))  # 0 where there is no vector
        column_W = torch.arange(self.queries + self.keys - 1, device=product_BHTR.device)
        has_row_W = (self.first <= column_W) & (column_W <= last)
        row_W = (column_W - few.first).clamp(0, rows - 1).masked_fill(~has_row_W, rows)
        row_TS = row_W.unfold(0, self.keys, 1).flip(0)
        return product_BHTR.gather(-1, row_TS.expand(*product_BHTR.shape[:2], -1, -1))

    @property
    def lengths(self) -> tuple[int, int]:
        return self.queries, self.keys

    def to(self, dtype: torch.dtype) -> "RelativeBias":
        return RelativeBias(
            self.query_BHTD.to(dtype), self.row_BHRD.to(dtype), self.keys, first=self.first, edges=self.edges
        )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.query_BHTD, self.row_BHRD)


class RelativeKeyBias(Bias):
    """``bias[i, j] = key[j] . row[i - j + S - 1 - first]``: one vector per distance, met by every key.

    `RelativeBias` with the two sides exchanged, and transposed; note that its rows go the other way, from the key that
    is furthest to the right of its query to the one that is furthest to the left.

    Args:
        key_BHSD: (B or 1, H, S, D).
        row_BHRD: (B or 1, H, R, D), the vectors of R distances in a row; at all others the bias is 0.
        queries: T.
        first: the first of those distances, counted from i - j = -(S-1), the lowest there is.
        edges: distances a and b, counted like ``first``: one vector up to a, one from b on; None = unknown.

    Raises:
        ValueError: there are rows beyond the T + S - 1 distances.
    """

    def __init__(
        self,
        key_BHSD: Tensor,
        row_BHRD: Tensor,
        queries: int,
        *,
        first: int = 0,
        edges: tuple[int, int] | None = None,
    ) -> None:
        self.exchanged = RelativeBias(key_BHSD, row_BHRD, queries, first=first, edges=edges)
        self.queries, self.keys, self.first, self.edges = queries, key_BHSD.shape[2], first, edges

    def dense(self) -> Tensor:
        return self.exchanged.dense().transpose(-1, -2)

    @property
    def lengths(self) -> tuple[int, int]:
        return self.queries, self.keys

    def to(self, dtype: torch.dtype) -> "RelativeKeyBias":
        return self._with(self.exchanged.to(dtype))

    def between(self, start: int, stop: int) -> "RelativeKeyBias":
        """Return the bias with the distances j - i + T - 1 from ``start`` to before ``stop`` alone."""
        diagonals = self.queries + self.keys - 1
        return self._with(self.exchanged.between(diagonals - stop, diagonals - start))

    def _with(self, exchanged: RelativeBias) -> "RelativeKeyBias":
        keys, rows = exchanged.tensors
        return RelativeKeyBias(keys, rows, self.queries, first=exchanged.first, edges=exchanged.edges)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.exchanged.tensors
