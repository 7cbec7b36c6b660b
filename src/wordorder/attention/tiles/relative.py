"""Products of queries, or of keys, with one vector per distance, one tile at a time."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from wordorder.attention.tiles.geometry import TileSlice, tiles_of
from wordorder.attention.tiles.term import TermTiles

FEWEST_KEYS = 32
"""The fewest keys for which a separate matrix product pays."""


class RelativeTiles(TermTiles):
    """A term ``q_i . r[j - i + T - 1 - first]``: queries (B or 1, H, T, D), vectors by distance (B or 1, H, ., D).

    The product with the vectors of the tile's distances has one column per distance. Each row of the tile begins one
    element earlier in it than the row before, so reading it with a row stride of one less gives one column per key.
    """

    product = torch.empty(0)
    spread = torch.empty(0)
    spread_of: tuple[int, ...] = ()

    def __init__(self, tensors: Sequence[Tensor], queries: int, wanted: bool, *, first: int) -> None:
        super().__init__(tensors, queries, wanted)
        self.first = first

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """Add one product per head, with its columns by distance read as columns by key."""
        heads, rows, keys = tile_HRE.shape
        q_HRD, r_HLD, columns = self._parts(self.tensors, example, tile)
        size = heads * rows * (rows + keys - 1)
        if self.product.numel() < size:
            self.product = tile_HRE.new_empty(size)
        product_HRL = self.product[:size].view(heads, rows, rows + keys - 1)
        product_HRL[..., : columns.start].zero_()
        product_HRL[..., columns.stop :].zero_()
        torch.bmm(q_HRD, r_HLD.transpose(1, 2), out=product_HRL[..., columns])
        windows_HRE = _askew(product_HRL, keys)
        tile_HRE.copy_(windows_HRE) if first else tile_HRE.add_(windows_HRE)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Write the gradient with columns by distance, and add its products with the vectors and with the queries."""
        heads, rows, keys = gradient_HRE.shape
        q_HRD, r_HLD, columns = self._parts(self.tensors, example, tile)
        dq_HRD, dr_HLD, _ = self._parts(self.gradients, example, tile)
        if self.spread_of != gradient_HRE.shape:  # the numbers between the rows stay 0
            self.spread, self.spread_of = gradient_HRE.new_zeros(heads, rows, rows + keys - 1), (heads, rows, keys)
        _askew(self.spread, keys).copy_(gradient_HRE)
        by_distance_HRL = self.spread[..., columns]
        dq_HRD.baddbmm_(by_distance_HRL, r_HLD)
        dr_HLD.baddbmm_(by_distance_HRL.transpose(1, 2), q_HRD)

    def _parts(self, pair: Sequence[Tensor], example: int, tile: TileSlice) -> tuple[Tensor, Tensor, slice]:
        """Return queries, the vectors there are for the tile, and their columns among its R + E - 1 distances."""
        q_BHTD, r_BHWD = pair
        _, rows, keys = tile.shape()
        lowest = self.queries - tile.rows.stop + tile.keys.start - self.first
        start = min(max(lowest, 0), r_BHWD.shape[2])
        stop = max(start, min(lowest + rows + keys - 1, r_BHWD.shape[2]))
        q_HRD = q_BHTD[min(example, q_BHTD.shape[0] - 1), tile.heads, tile.rows]
        r_HLD = r_BHWD[min(example, r_BHWD.shape[0] - 1), tile.heads, start:stop]
        begin = min(start - lowest, rows + keys - 1) if stop > start else 0
        return q_HRD, r_HLD, slice(begin, begin + stop - start)


def _askew(product_HRL: Tensor, keys: int) -> Tensor:
    """Return a view (H, R, E) with columns by key of a product with columns by distance."""
    heads, rows, width = product_HRL.shape
    strides, begin = (rows * width, width - 1, 1), product_HRL.storage_offset() + rows - 1
    return product_HRL.as_strided((heads, rows, keys), strides, begin)


class RelativeKeyTiles(RelativeTiles):
    """A term ``k_j . r[i - j + S - 1 - first]``: keys (B or 1, H, S, D), vectors by distance (B or 1, H, ., D).

    It is `RelativeTiles` with queries and keys exchanged and the tile transposed. A key needs R of the R + E - 1
    distances of a tile, so that wide tiles are processed a few keys at a time.
    """

    def __init__(self, tensors: Sequence[Tensor], queries: int, wanted: bool, *, first: int) -> None:
        del queries
        super().__init__(tensors, tensors[0].shape[2], wanted, first=first)

    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """Add the term to the transposed tile, a few keys at a time."""
        for part in _blocks_of_keys(tile):
            columns_HRE = tile_HRE[..., tile.columns_of(part)]
            super().add_to(columns_HRE.transpose(1, 2), example, part.exchanged(), first=first)

    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Accumulate from the transposed gradient, a few keys at a time."""
        for part in _blocks_of_keys(tile):
            columns_HRE = gradient_HRE[..., tile.columns_of(part)]
            super().accumulate_gradient(columns_HRE.transpose(1, 2), example, part.exchanged())


def _blocks_of_keys(tile: TileSlice) -> Iterator[TileSlice]:
    """Cut the tile into parts with about as many keys as rows."""
    return tiles_of(tile, max(FEWEST_KEYS, tile.shape()[1]))
