"""The bias of the scores, one tile at a time: its values are added to a tile, its gradient is accumulated from one.

Each term of the bias has a class with both operations (G is the gradient of the tile)::

    low rank   tile += a c'           da += G c,  dc += G' a
    Toeplitz   tile[i, j] += t[j - i] dt[m] += sum of G over the diagonal j - i = m
    relative   tile[i, j] += q_i . r[j - i],  with G' = G, its columns sorted by distance:
                                      dq += G' r,  dr += G'^T q;  of terms k_j . r[i - j] with G transposed
    dense      tile += its own part   its own part of the gradient = G
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from wordorder.attention.tiles.geometry import TileSlice
from wordorder.attention.tiles.relative import RelativeKeyTiles, RelativeTiles
from wordorder.attention.tiles.term import TermTiles
from wordorder.ops import Bias, DenseBias, LowRankBias, RelativeBias, RelativeKeyBias, ToeplitzBias


class LowRankTiles(TermTiles):
    """A low-rank term ``a c'`` with factors (B or 1, H, T, R) and (B or 1, H, S, R)."""

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """Add one matrix product per head to the tile."""
        a_HRK, c_HEK = self._parts(self.tensors, example, tile)
        tile_HRE.baddbmm_(a_HRK, c_HEK.transpose(1, 2), beta=0.0 if first else 1.0)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Add the gradient of each factor: the gradient of the tile times the other factor."""
        a_HRK, c_HEK = self._parts(self.tensors, example, tile)
        da_HRK, dc_HEK = self._parts(self.gradients, example, tile)
        da_HRK.baddbmm_(gradient_HRE, c_HEK)
        dc_HEK.baddbmm_(gradient_HRE.transpose(1, 2), a_HRK)

    def _parts(self, factors: Sequence[Tensor], example: int, tile: TileSlice) -> tuple[Tensor, Tensor]:
        a_BHTK, c_BHSK = factors
        a_HRK = a_BHTK[min(example, a_BHTK.shape[0] - 1), tile.heads, tile.rows]
        return a_HRK, c_BHSK[min(example, c_BHSK.shape[0] - 1), tile.heads, tile.keys]


class ToeplitzTiles(TermTiles):
    """A Toeplitz term ``t[j - i + T - 1]`` with a table t (1, H, T + S - 1)."""

    skewed = torch.empty(0, 0)
    keys = 0

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """Add to each row of the tile its window of the table.

        The span of distances is repeated once per row and read with a row stride of one less, which gives each row its
        window in a third of the time of gathering windows in reverse.
        """
        del example
        heads, rows, keys = tile_HRE.shape
        span_HL = self._span(self.tensors[0], tile).contiguous()
        length = span_HL.shape[1]
        repeated_HX = span_HL[:, None].expand(heads, rows, length).reshape(heads, rows * length)
        strides, begin = (repeated_HX.stride(0), length - 1, 1), repeated_HX.storage_offset() + rows - 1
        windows_HRE = repeated_HX.as_strided((heads, rows, keys), strides, begin)
        tile_HRE.copy_(windows_HRE) if first else tile_HRE.add_(windows_HRE)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Add the sum of each diagonal: rows written with stride W and read with W + 1 turn diagonals into columns."""
        del example
        heads, rows, keys = gradient_HRE.shape
        width = rows + keys - 1
        if self.skewed.shape[1] != rows - 1 + rows * (width + 1) or self.skewed.shape[0] != heads or self.keys != keys:
            self.skewed, self.keys = gradient_HRE.new_zeros(heads, rows - 1 + rows * (width + 1)), keys
        # the numbers between the rows stay 0
        flat_HX = self.skewed[:, rows - 1 : rows - 1 + rows * width]
        flat_HX.view(heads, rows, width)[..., :keys].copy_(gradient_HRE)
        read_HRW = self.skewed.as_strided((heads, rows, width), (self.skewed.shape[1], width + 1, 1))
        self._span(self.gradients[0], tile).add_(read_HRW.sum(1))

    def _span(self, table_1HW: Tensor, tile: TileSlice) -> Tensor:
        """Return the part of the table for the distances in the tile, ascending."""
        lowest = self.queries - tile.rows.stop + tile.keys.start
        _, rows, keys = tile.shape()
        return table_1HW[0, tile.heads, lowest : lowest + rows + keys - 1]


class DenseTiles(TermTiles):
    """A term that is written out as a matrix (B or 1, H, T, S)."""

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """Add the part of the matrix that belongs to the tile."""
        part = self.part_of(self.tensors[0], example, tile)
        tile_HRE.copy_(part) if first else tile_HRE.add_(part)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Add the gradient to its part of the matrix; examples that share a matrix add to the same part."""
        self.part_of(self.gradients[0], example, tile).add_(gradient_HRE)

    @staticmethod
    def part_of(tensor_BHTS: Tensor, example: int, tile: TileSlice) -> Tensor:
        """Return a tile of the matrix as a view."""
        return tensor_BHTS[min(example, tensor_BHTS.shape[0] - 1), tile.heads, tile.rows, tile.keys]


class Kind(NamedTuple):
    """The tile class of one term of the bias, and its number of tensors."""

    make: Callable[[Sequence[Tensor], int, bool], TermTiles]
    tensors: int


class BiasTiles:
    """A bias as the sum of its terms; terms shared by all examples are built once per tile, not once per example.

    Args:
        kinds: tile class and number of tensors of each term.
        tensors: the tensors of all terms, in the order of the terms, in the dtype of the tiles.
        queries: T.
        wanted: per term, whether its gradient is needed.
    """

    def __init__(self, kinds: Sequence[Kind], tensors: Sequence[Tensor], queries: int, wanted: Sequence[bool]) -> None:
        rest = iter(tensors)
        self.terms = [
            kind.make([next(rest) for _ in range(kind.tensors)], queries, want)
            for kind, want in zip(kinds, wanted, strict=True)
        ]
        self.shared = [term for term in self.terms if term.shared]
        self.own = [term for term in self.terms if not term.shared]
        self.shared_wanted = [term for term in self.shared if term.wanted]
        only = self.shared[0] if len(self.shared) == 1 else None
        self.matrix = only if isinstance(only, DenseTiles) else None

    def shared_tile(self, scratch: Tensor, tile: TileSlice) -> Tensor | None:
        """Return the part shared by all examples, in scratch memory or as a view; None if no term is shared."""
        if self.matrix is not None:
            return self.matrix.part_of(self.matrix.tensors[0], 0, tile)
        if not self.shared:
            return None
        tile_HRE = scratch[: tile.size()].view(tile.shape())
        for index, term in enumerate(self.shared):
            term.add_to(tile_HRE, 0, tile, first=index == 0)
        return tile_HRE

    def is_last_use(self, example: int, batch: int) -> bool:
        """Tell whether the shared tile is in scratch memory and this example is the last to read it."""
        return self.matrix is None and bool(self.shared) and example == batch - 1

    def add_own(self, tile_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Add the terms that differ between examples."""
        for term in self.own:
            term.add_to(tile_HRE, example, tile, first=False)

    def accumulator(self, scratch: Tensor, tile: TileSlice) -> Tensor | None:
        """Return the tensor in which the shared gradient is summed over examples; None if it is not needed."""
        if not self.shared_wanted:
            return None
        if self.matrix is not None:  # summed in the gradient itself: one pass less
            return self.matrix.part_of(self.matrix.gradients[0], 0, tile)
        return scratch[: tile.size()].view(tile.shape())

    def accumulate_shared_gradient(self, gradient_HRE: Tensor, tile: TileSlice) -> None:
        """Add the gradient summed in `accumulator` to the gradients of the shared terms."""
        if self.matrix is None:
            for term in self.shared_wanted:
                term.accumulate_gradient(gradient_HRE, 0, tile)

    def accumulate_own_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Add the gradient of one example's scores to the gradients of the terms that differ between examples."""
        for term in self.own:
            if term.wanted:
                term.accumulate_gradient(gradient_HRE, example, tile)

    def gradients(self) -> list[Tensor | None]:
        """Return the gradient of each tensor, in their order; None where it is not needed."""
        found: list[Tensor | None] = []
        for term in self.terms:
            found += term.gradients or [None] * len(term.tensors)
        return found


def as_tiles(bias: Bias, *, batch: int, heads: int, queries: int, keys: int) -> tuple[list[Kind], list[Tensor]]:
    """Return the kinds of a bias's terms and their tensors, each with an axis of B or 1 examples and one of all heads.

    Raises:
        TypeError: a term of the bias is neither low-rank, Toeplitz, relative nor dense.
        ValueError: a term does not have these numbers of examples, heads, queries and keys.
    """
    for part in bias.parts():
        _check_fits(part, batch, heads, queries, keys)
    kinds: list[Kind] = []
    tensors: list[Tensor] = []
    for part in bias.parts():
        if isinstance(part, LowRankBias):
            kinds.append(Kind(LowRankTiles, 2))
            tensors += [factor.expand(-1, heads, -1, -1) for factor in part.tensors]
        elif isinstance(part, ToeplitzBias):
            kinds.append(Kind(ToeplitzTiles, 1))
            tensors.append(part.table_HW.expand(heads, -1)[None])
        elif isinstance(part, RelativeBias | RelativeKeyBias):
            made = RelativeTiles if isinstance(part, RelativeBias) else RelativeKeyTiles
            kinds.append(Kind(partial(made, first=part.first), 2))
            tensors += [tensor.expand(-1, heads, -1, -1) for tensor in part.tensors]
        elif isinstance(part, DenseBias):
            kinds.append(Kind(DenseTiles, 1))
            tensors.append(part.tensor_BHTS.expand(-1, heads, -1, -1))
        else:
            raise TypeError(f"no tiles for a bias of type {type(part).__name__}; add them to tiles/bias.py")
    return kinds, tensors


def _check_fits(part: Bias, batch: int, heads: int, queries: int, keys: int) -> None:
    """Refuse a term of another size, from which tiles would be cut without an error and with wrong numbers."""
    if isinstance(part, LowRankBias):
        lengths = part.query_factor_BHTR.shape[2], part.key_factor_BHSR.shape[2]
        leading = [factor.shape[:2] for factor in part.tensors]
    elif isinstance(part, ToeplitzBias):
        lengths, leading = (part.queries, part.keys), [(1, part.table_HW.shape[0])]
    elif isinstance(part, RelativeBias | RelativeKeyBias):
        lengths, leading = (part.queries, part.keys), [tensor.shape[:2] for tensor in part.tensors]
    elif isinstance(part, DenseBias):
        lengths, leading = tuple(part.tensor_BHTS.shape[2:]), [part.tensor_BHTS.shape[:2]]
    else:
        return
    if lengths != (queries, keys) or any(b not in (1, batch) or h not in (1, heads) for b, h in leading):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in part.tensors)
        raise ValueError(
            f"a {type(part).__name__} of {lengths[0]} x {lengths[1]} positions, tensors {shapes}, does not fit {batch} "
            f"examples, {heads} heads, {queries} queries and {keys} keys"
        )
