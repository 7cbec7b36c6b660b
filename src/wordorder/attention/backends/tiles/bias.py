"""The bias of the scores, one tile at a time: its values are added to a tile, its gradient is accumulated from one.

Each term of the bias has a class with both operations (G is the gradient of the tile)::

    low rank   tile += a c'           da += G c,  dc += G' a
    Toeplitz   tile[i, j] += t[j - i] dt[m] += sum of G over the diagonal j - i = m
    relative   tile[i, j] += q_i . r[j - i],  with G' = G, its columns sorted by distance:
                                      dq += G' r,  dr += G'^T q;  of terms k_j . r[i - j] with G transposed
    dense      tile += its own part   its own part of the gradient = G
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from wordorder.attention.backends.tiles.tile import TileSlice, tiles_of
from wordorder.ops import Bias, DenseBias, LowRankBias, RelativeBias, RelativeKeyBias, ToeplitzBias, check_bias_fits

FEWEST_KEYS = 32
"""The fewest keys for which a separate matrix product pays."""


class TermTiles(ABC):
    """One term of the bias; its tensors have a first axis of B or 1 examples."""

    def __init__(self, tensors: Sequence[Tensor], queries: int, wanted: bool) -> None:
        self.tensors, self.queries, self.wanted = tuple(tensors), queries, wanted
        self.shared = all(tensor.shape[0] == 1 for tensor in tensors)
        trained = tensors if wanted else ()
        self.gradients = [torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in trained]

    @abstractmethod
    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """Add this term to the tile; ``first``: overwrite the tile."""

    @abstractmethod
    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Add the gradient of the tile to ``gradients``."""


class LowRankTiles(TermTiles):
    """A low-rank term ``a c'`` with factors (B or 1, H, T, R) and (B or 1, H, S, R)."""

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        a_HRK, c_HEK = self._parts(self.tensors, example, tile)
        tile_HRE.baddbmm_(a_HRK, c_HEK.transpose(1, 2), beta=0.0 if first else 1.0)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        a_HRK, c_HEK = self._parts(self.tensors, example, tile)
        da_HRK, dc_HEK = self._parts(self.gradients, example, tile)
        da_HRK.baddbmm_(gradient_HRE, c_HEK)
        dc_HEK.baddbmm_(gradient_HRE.transpose(1, 2), a_HRK)

    def _parts(self, factors: Sequence[Tensor], example: int, tile: TileSlice) -> tuple[Tensor, Tensor]:
        a_BHTK, c_BHSK = factors
        a_HRK = a_BHTK[min(example, a_BHTK.shape[0] - 1), tile.heads, tile.rows]
        return a_HRK, c_BHSK[min(example, c_BHSK.shape[0] - 1), tile.heads, tile.keys]


def _askew(product_HRL: Tensor, keys: int) -> Tensor:
    """Return a view (H, R, E) with columns by key of numbers with columns by distance.

    Each row of the tile begins one element earlier in them than the row before: it is read with a row stride of one
    less.
    """
    heads, rows, width = product_HRL.shape
    strides, begin = (rows * width, width - 1, 1), product_HRL.storage_offset() + rows - 1
    return product_HRL.as_strided((heads, rows, keys), strides, begin)


class TilesByDistance(TermTiles):
    """A term by distance: of its tile with columns by distance, (H, R, R + E - 1), the tile itself is a view.

    ``edges``: columns a and b of all T + S - 1, up to and from which on the term does not depend on the distance.
    """

    memory_HRL = torch.empty(0)
    tile_shape: tuple[int, ...] = ()

    def __init__(
        self, tensors: Sequence[Tensor], queries: int, wanted: bool, *, edges: tuple[int, int] | None = None
    ) -> None:
        super().__init__(tensors, queries, wanted)
        self.edges = edges

    def is_constant(self, tile: TileSlice) -> bool:
        """Tell whether the tile is beyond an edge."""
        assert self.edges is not None
        lowest = self.queries - tile.rows.stop + tile.keys.start
        _, rows, keys = tile.shape()
        return lowest + rows + keys - 2 <= self.edges[0] or lowest >= self.edges[1]

    def spread(self, tile_HRE: Tensor) -> Tensor:
        """Return the tile with columns by distance, 0 at the distances that a row does not have."""
        heads, rows, keys = tile_HRE.shape
        if self.tile_shape != tile_HRE.shape:  # the numbers between the rows stay 0
            self.memory_HRL, self.tile_shape = tile_HRE.new_zeros(heads, rows, rows + keys - 1), (heads, rows, keys)
        _askew(self.memory_HRL, keys).copy_(tile_HRE)
        return self.memory_HRL


class ToeplitzTiles(TilesByDistance):
    """A Toeplitz term ``t[j - i + T - 1]`` with a table t (1, H, T + S - 1)."""

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """Add to each row of the tile its window of the table.

        The span of distances is repeated once per row, a third of the time of gathering windows in reverse.
        """
        del example
        _, rows, keys = tile_HRE.shape
        span_HX = self._span(self.tensors[0], tile)
        if self.edges is not None and self.is_constant(tile):
            windows_HRE = span_HX[:, :1, None]
        else:
            windows_HRE = _askew(span_HX[:, None].expand(-1, rows, -1).contiguous(), keys)
        tile_HRE.copy_(windows_HRE) if first else tile_HRE.add_(windows_HRE)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Add the sum of each diagonal; where the table is constant, of all of them, to one."""
        del example
        span_HX = self._span(self.gradients[0], tile)
        if self.edges is not None and self.is_constant(tile):
            span_HX[:, 0] += gradient_HRE.sum((1, 2))
        else:
            span_HX.add_(self.spread(gradient_HRE).sum(1))

    def _span(self, table_1HW: Tensor, tile: TileSlice) -> Tensor:
        """Return the part of the table for the distances in the tile, ascending."""
        lowest = self.queries - tile.rows.stop + tile.keys.start
        _, rows, keys = tile.shape()
        return table_1HW[0, tile.heads, lowest : lowest + rows + keys - 1]


class DenseTiles(TermTiles):
    """A term that is written out as a matrix (B or 1, H, T, S)."""

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        part = self.part_of(self.tensors[0], example, tile)
        tile_HRE.copy_(part) if first else tile_HRE.add_(part)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Add the gradient to its part of the matrix; examples that share a matrix add to the same part."""
        self.part_of(self.gradients[0], example, tile).add_(gradient_HRE)

    @staticmethod
    def part_of(tensor_BHTS: Tensor, example: int, tile: TileSlice) -> Tensor:
        """Return a tile of the matrix as a view."""
        return tensor_BHTS[min(example, tensor_BHTS.shape[0] - 1), tile.heads, tile.rows, tile.keys]


class RelativeTiles(TilesByDistance):
    """A term ``q_i . r[j - i + T - 1 - first]``: queries (B or 1, H, T, D), vectors by distance (B or 1, H, ., D).

    The product with the vectors of the tile's distances has one column per distance, and is read askew. Columns beyond
    an edge are that of the edge: they are copied, and their gradients summed, since products cost more.
    """

    product = torch.empty(0)

    def __init__(
        self,
        tensors: Sequence[Tensor],
        queries: int,
        wanted: bool,
        *,
        first: int,
        edges: tuple[int, int] | None = None,
    ) -> None:
        del (
            queries
        )  # the vectors are counted by the rows that meet them: of keys, where `RelativeKeyTiles` exchanges both
        super().__init__(tensors, tensors[0].shape[2], wanted, edges=edges)
        self.first = first

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        heads, rows, keys = tile_HRE.shape
        q_HRD, r_HLD, columns = self._parts(self.tensors, example, tile)
        if self.edges is not None and self.is_constant(tile):
            column_HR1 = q_HRD @ r_HLD[:, 0, :, None] if r_HLD.shape[1] else tile_HRE.new_zeros(())
            tile_HRE.copy_(column_HR1) if first else tile_HRE.add_(column_HR1)
            return
        size = heads * rows * (rows + keys - 1)
        if self.product.numel() < size:
            self.product = tile_HRE.new_empty(size)
        product_HRL = self.product[:size].view(heads, rows, rows + keys - 1)
        product_HRL[..., : columns.start].zero_()
        product_HRL[..., columns.stop :].zero_()
        if self.edges is None:
            torch.bmm(q_HRD, r_HLD.transpose(1, 2), out=product_HRL[..., columns])
        else:
            between, there_HRL = self._between(tile, columns), product_HRL[..., columns]
            torch.bmm(q_HRD, r_HLD[:, between].transpose(1, 2), out=there_HRL[..., between])
            for beyond, edge in self._beyond(between, r_HLD.shape[1]):
                there_HRL[..., beyond] = there_HRL[..., edge, None]
        windows_HRE = _askew(product_HRL, keys)
        tile_HRE.copy_(windows_HRE) if first else tile_HRE.add_(windows_HRE)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Write the gradient with columns by distance, and add its products with the vectors and with the queries."""
        q_HRD, r_HLD, columns = self._parts(self.tensors, example, tile)
        dq_HRD, dr_HLD, _ = self._parts(self.gradients, example, tile)

        def add(row: int, of_row_HRX: Tensor) -> None:
            sums_HR1 = of_row_HRX.sum(-1, keepdim=True)
            dq_HRD.add_(sums_HR1 * r_HLD[:, row, None])
            dr_HLD[:, row] += (sums_HR1 * q_HRD).sum(1)

        if self.edges is not None and self.is_constant(tile):
            if r_HLD.shape[1]:
                add(0, gradient_HRE)
            return
        by_distance_HRL = self.spread(gradient_HRE)[..., columns]
        if self.edges is None:
            dq_HRD.baddbmm_(by_distance_HRL, r_HLD)
            dr_HLD.baddbmm_(by_distance_HRL.transpose(1, 2), q_HRD)
            return
        between = self._between(tile, columns)
        dq_HRD.baddbmm_(by_distance_HRL[..., between], r_HLD[:, between])
        dr_HLD[:, between].baddbmm_(by_distance_HRL[..., between].transpose(1, 2), q_HRD)
        for beyond, edge in self._beyond(between, r_HLD.shape[1]):
            add(edge, by_distance_HRL[..., beyond])

    def _between(self, tile: TileSlice, columns: slice) -> slice:
        """Return those of the tile's vectors that are not beyond an edge; where all are, the nearest one."""
        assert self.edges is not None
        count = columns.stop - columns.start
        if not count:
            return slice(0, 0)
        lowest = self.queries - tile.rows.stop + tile.keys.start + columns.start
        start = min(max(self.edges[0] - lowest, 0), count - 1)
        return slice(start, max(min(self.edges[1] + 1 - lowest, count), start + 1))

    @staticmethod
    def _beyond(between: slice, count: int) -> list[tuple[slice, int]]:
        """Return the vectors on each side beyond the edge, and the one at the edge, if there are some."""
        sides = (slice(0, between.start), between.start), (slice(between.stop, count), between.stop - 1)
        return [(side, edge) for side, edge in sides if side.start < side.stop]

    def _parts(self, pair: Sequence[Tensor], example: int, tile: TileSlice) -> tuple[Tensor, Tensor, slice]:
        """Return queries, the vectors there are for the tile, and their columns among its R + E - 1 distances."""
        q_BHTD, r_BHWD = pair
        _, rows, keys = tile.shape()
        lowest = self.queries - tile.rows.stop + tile.keys.start - self.first
        start = min(max(lowest, 0), r_BHWD.shape[2])
        stop = max(start, min(lowest + rows + keys - 1, r_BHWD.shape[2]))
        q_HRD = q_BHTD[min(example, q_BHTD.shape[0] - 1), tile.heads, tile.rows]
        r_HLD = r_BHWD[min(example, r_BHWD.shape[0] - 1), tile.heads, start:stop]
        begin = start - lowest if stop > start else 0
        return q_HRD, r_HLD, slice(begin, begin + stop - start)


class RelativeKeyTiles(RelativeTiles):
    """A term ``k_j . r[i - j + S - 1 - first]``: keys (B or 1, H, S, D), vectors by distance (B or 1, H, ., D).

    It is `RelativeTiles` with queries and keys exchanged and the tile transposed. A key needs R of the R + E - 1
    distances of a tile, so that wide tiles are processed a few keys at a time.
    """

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        for part in _blocks_of_keys(tile):
            columns_HRE = tile_HRE[..., tile.columns_of(part)]
            super().add_to(columns_HRE.transpose(1, 2), example, part.exchanged(), first=first)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        for part in _blocks_of_keys(tile):
            columns_HRE = gradient_HRE[..., tile.columns_of(part)]
            super().accumulate_gradient(columns_HRE.transpose(1, 2), example, part.exchanged())


def _blocks_of_keys(tile: TileSlice) -> Iterator[TileSlice]:
    """Cut the tile into parts with about as many keys as rows."""
    return tiles_of(tile, max(FEWEST_KEYS, tile.shape()[1]))


class Kind(NamedTuple):
    """The tile class of one term of the bias, and its number of tensors."""

    make: Callable[[Sequence[Tensor], int, bool], TermTiles]
    tensors: int


class BiasTiles:
    """A bias as the sum of its terms; terms shared by all examples are built once per tile, not once per example.

    ``tensors`` are those of all terms, in the order of the terms, in the dtype of the tiles.
    """

    def __init__(self, kinds: Sequence[Kind], tensors: Sequence[Tensor], queries: int, wanted: Sequence[bool]) -> None:
        rest = iter(tensors)
        self.terms = [
            kind.make([next(rest) for _ in range(kind.tensors)], queries, want)
            for kind, want in zip(kinds, wanted, strict=True)
        ]
        self.shared = [term for term in self.terms if term.shared]
        self.unshared = [term for term in self.terms if not term.shared]
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
        for term in self.unshared:
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
        for term in self.unshared:
            if term.wanted:
                term.accumulate_gradient(gradient_HRE, example, tile)

    def gradients(self) -> list[Tensor | None]:
        """Return the gradient of each tensor, in their order; None where it is not needed."""
        gradients: list[Tensor | None] = []
        for term in self.terms:
            gradients += term.gradients or [None] * len(term.tensors)
        return gradients


def as_tiles(bias: Bias, *, batch: int, heads: int, queries: int, keys: int) -> tuple[list[Kind], list[Tensor]]:
    """Return the kinds of a bias's terms and their tensors, each with an axis of B or 1 examples and one of all heads.

    A term of another size is refused: tiles would be cut from it without an error and with wrong numbers.
    """
    check_bias_fits(bias, batch=batch, heads=heads, queries=queries, keys=keys)
    kinds: list[Kind] = []
    tensors: list[Tensor] = []
    for part in bias.parts():
        part_tensors = list(part.tensors)
        if isinstance(part, LowRankBias):
            kind = Kind(LowRankTiles, 2)
        elif isinstance(part, ToeplitzBias):
            part_tensors, kind = [part.table_HW[None]], Kind(partial(ToeplitzTiles, edges=part.edges), 1)
        elif isinstance(part, RelativeBias | RelativeKeyBias):
            tile_class = RelativeTiles if isinstance(part, RelativeBias) else RelativeKeyTiles
            kind = Kind(partial(tile_class, first=part.first, edges=part.edges), 2)
        elif isinstance(part, DenseBias):
            part_tensors, kind = [part.tensor_BHTS.expand(-1, -1, queries, keys)], Kind(DenseTiles, 1)
        else:
            raise TypeError(f"no tiles for a bias of type {type(part).__name__}; add them to tiles/bias.py")
        kinds.append(kind)
        tensors += [tensor.expand(-1, heads, *tensor.shape[2:]) for tensor in part_tensors]
    return kinds, tensors
