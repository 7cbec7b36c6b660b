"""Tiles: blocks of heads, rows (queries) and columns (keys) of the (H, T, S) scores, which are never written out."""

from collections.abc import Iterator
from typing import NamedTuple

ROW_TILE = 262_144
"""Elements of a tile of whole rows: 1 MiB of float32, about the second-level cache of one core."""
SQUARE_TILE = (256, 512)
"""Rows and keys of a tile where rows need not be whole: long enough for the matrix products to be efficient."""
BAND_ROWS = 64
"""Rows of a tile where the mask is a band of diagonals: the fewer rows, the less is computed outside the band."""


class TileSlice(NamedTuple):
    """The heads, rows and columns of the matrix that form a tile."""

    heads: slice
    rows: slice
    keys: slice

    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of heads, rows and columns."""
        heads, rows, keys = (part.stop - part.start for part in self)
        return heads, rows, keys

    def size(self) -> int:
        """Return the number of elements."""
        heads, rows, keys = self.shape()
        return heads * rows * keys

    def limited_to(self, keys: slice) -> "TileSlice":
        """Return the part of the tile within these keys; it may be empty."""
        start = max(self.keys.start, keys.start)
        return self._replace(keys=slice(start, max(start, min(keys.stop, self.keys.stop))))

    def exchanged(self) -> "TileSlice":
        """Return the tile with rows and keys exchanged."""
        return TileSlice(self.heads, self.keys, self.rows)

    def columns_of(self, part: "TileSlice") -> slice:
        """Return the columns of this tile that hold the keys of a part of it."""
        return slice(part.keys.start - self.keys.start, part.keys.stop - self.keys.start)


def row_tile(heads: int, queries: int, keys: int, *, band: bool = False) -> tuple[int, int, int]:
    """Return heads, rows (at least 32) and keys of a tile of whole rows; ``band``: the mask is a band of diagonals."""
    queries, keys = max(1, queries), max(1, keys)  # also without anything to compute
    rows = min(queries, max(32, ROW_TILE // keys), BAND_ROWS if band else queries)
    return max(1, min(heads, ROW_TILE // (rows * keys))), rows, keys


def square_tile(heads: int, queries: int, keys: int, *, band: bool = False) -> tuple[int, int, int]:
    """Return heads, rows and keys of a tile of parts of rows; ``band``: the mask is a band of diagonals."""
    rows, columns = max(1, min(queries, SQUARE_TILE[0])), max(1, min(keys, SQUARE_TILE[1]))
    elements = SQUARE_TILE[0] * SQUARE_TILE[1]
    if band:
        rows, elements = min(rows, BAND_ROWS), max(elements, ROW_TILE)
    return max(1, min(heads, elements // (rows * columns))), rows, columns


def tiles(heads: int, queries: int, keys: int, shape: tuple[int, int, int]) -> Iterator[TileSlice]:
    """Yield all tiles of this shape; those at the ends may be smaller."""
    for head in range(0, heads, shape[0]):
        for row in range(0, queries, shape[1]):
            for key in range(0, keys, shape[2]):
                yield TileSlice(
                    slice(head, min(head + shape[0], heads)),
                    slice(row, min(row + shape[1], queries)),
                    slice(key, min(key + shape[2], keys)),
                )


def tiles_of(band: TileSlice, columns: int) -> Iterator[TileSlice]:
    """Cut a band of rows into tiles of so many columns."""
    for key in range(band.keys.start, band.keys.stop, columns):
        yield band._replace(keys=slice(key, min(key + columns, band.keys.stop)))
