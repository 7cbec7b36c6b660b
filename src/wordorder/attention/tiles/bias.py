"""The bias of the scores, a tile at a time: built where it is needed, its gradient taken up where it arises.

Each summand of the bias knows how to add itself to a tile, and how to take up the gradient of a tile::

    low rank   tile += a c'           da += G c,  dc += G' a
    Toeplitz   tile[i, j] += t[j - i] dt[m] += sum of G over the diagonal j - i = m
    relative   tile[i, j] += q_i . r[j - i],  with G' the tile's gradient with columns by distance:
                                      dq += G' r,  dr += G'^T q;  keys that meet a vector per distance likewise
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
    """``a c'`` of factors (B or 1, H, T, R) and (B or 1, H, S, R)."""

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """One matrix product per head."""
        a_HRK, c_HEK = self._parts(self.tensors, example, tile)
        tile_HRE.baddbmm_(a_HRK, c_HEK.transpose(1, 2), beta=0.0 if first else 1.0)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Contract with the other factor."""
        a_HRK, c_HEK = self._parts(self.tensors, example, tile)
        da_HRK, dc_HEK = self._parts(self.gradients, example, tile)
        da_HRK.baddbmm_(gradient_HRE, c_HEK)
        dc_HEK.baddbmm_(gradient_HRE.transpose(1, 2), a_HRK)

    def _parts(self, factors: Sequence[Tensor], example: int, tile: TileSlice) -> tuple[Tensor, Tensor]:
        a_BHTK, c_BHSK = factors
        a_HRK = a_BHTK[min(example, a_BHTK.shape[0] - 1), tile.heads, tile.rows]
        return a_HRK, c_BHSK[min(example, c_BHSK.shape[0] - 1), tile.heads, tile.keys]


class ToeplitzTiles(TermTiles):
    """``t[j - i + T - 1]`` of a table (1, H, T + S - 1)."""

    skewed = torch.empty(0, 0)
    keys = 0

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """Windows of the table, one per row.

        The span of distances, written out once per row and read with a row stride of one less, is each row's window:
        a third of the time of gathering windows in reverse.
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
        """Sums of the diagonals: rows written with a stride of W and read with one of W + 1 stand under one another."""
        del example
        heads, rows, keys = gradient_HRE.shape
        width = rows + keys - 1
        if self.skewed.shape[1] != rows - 1 + rows * (width + 1) or self.skewed.shape[0] != heads or self.keys != keys:
            self.skewed, self.keys = gradient_HRE.new_zeros(heads, rows - 1 + rows * (width + 1)), keys
        # what lies between the rows stays 0
        flat_HX = self.skewed[:, rows - 1 : rows - 1 + rows * width]
        flat_HX.view(heads, rows, width)[..., :keys].copy_(gradient_HRE)
        read_HRW = self.skewed.as_strided((heads, rows, width), (self.skewed.shape[1], width + 1, 1))
        self._span(self.gradients[0], tile).add_(read_HRW.sum(1))

    def _span(self, table_1HW: Tensor, tile: TileSlice) -> Tensor:
        """The distances that occur in the tile, ascending."""
        lowest = self.queries - tile.rows.stop + tile.keys.start
        _, rows, keys = tile.shape()
        return table_1HW[0, tile.heads, lowest : lowest + rows + keys - 1]


class DenseTiles(TermTiles):
    """A matrix that is there already, (B or 1, H, T, S)."""

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """Its part."""
        part = self.part_of(self.tensors[0], example, tile)
        tile_HRE.copy_(part) if first else tile_HRE.add_(part)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Its part; added, because examples share a matrix without an axis for them."""
        self.part_of(self.gradients[0], example, tile).add_(gradient_HRE)

    @staticmethod
    def part_of(tensor_BHTS: Tensor, example: int, tile: TileSlice) -> Tensor:
        """The tile itself, without a copy."""
        return tensor_BHTS[min(example, tensor_BHTS.shape[0] - 1), tile.heads, tile.rows, tile.keys]


class Kind(NamedTuple):
    """How one summand is put into tiles, and how many tensors it is made of."""

    make: Callable[[Sequence[Tensor], int, bool], TermTiles]
    tensors: int


class BiasTiles:
    """A bias as the sum of its terms; terms that all examples share are built once per tile, not once per example.

    Args:
        kinds: of the terms.
        tensors: their tensors, in the order of the terms, in the dtype of the tiles.
        queries: T.
        wanted: per term, whether a gradient will be asked for.
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
        """The part that all examples share, in scratch memory or in place; None where there is none."""
        if self.matrix is not None:
            return self.matrix.part_of(self.matrix.tensors[0], 0, tile)
        if not self.shared:
            return None
        tile_HRE = scratch[: tile.size()].view(tile.shape())
        for index, term in enumerate(self.shared):
            term.add_to(tile_HRE, 0, tile, first=index == 0)
        return tile_HRE

    def is_last_use(self, example: int, batch: int) -> bool:
        """Whether the shared tile lies in scratch memory that nobody reads after this example."""
        return self.matrix is None and bool(self.shared) and example == batch - 1

    def add_own(self, tile_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Add the part that belongs to one example."""
        for term in self.own:
            term.add_to(tile_HRE, example, tile, first=False)

    def accumulator(self, scratch: Tensor, tile: TileSlice) -> Tensor | None:
        """Where the gradient of the shared part is to be summed over examples; None where nobody wants it."""
        if not self.shared_wanted:
            return None
        if self.matrix is not None:  # summed in the gradient itself: one pass less
            return self.matrix.part_of(self.matrix.gradients[0], 0, tile)
        return scratch[: tile.size()].view(tile.shape())

    def accumulate_shared_gradient(self, gradient_HRE: Tensor, tile: TileSlice) -> None:
        """Take up what `accumulator` has summed."""
        if self.matrix is None:
            for term in self.shared_wanted:
                term.accumulate_gradient(gradient_HRE, 0, tile)

    def accumulate_own_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Take up the gradient of the scores of one example."""
        for term in self.own:
            if term.wanted:
                term.accumulate_gradient(gradient_HRE, example, tile)

    def gradients(self) -> list[Tensor | None]:
        """In the order of the tensors."""
        found: list[Tensor | None] = []
        for term in self.terms:
            found += term.gradients or [None] * len(term.tensors)
        return found


def as_tiles(bias: Bias, *, batch: int, heads: int, queries: int, keys: int) -> tuple[list[Kind], list[Tensor]]:
    """The kinds of the summands and their tensors, each with an axis of B or 1 examples and one of all heads.

    Raises:
        TypeError: the bias has a summand of another kind than low rank, Toeplitz, relative or dense.
        ValueError: a summand is not one of so many examples, heads, queries and keys.
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
    """Tiles read parts of tensors, so that a wrong size would give wrong numbers and no error."""
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
