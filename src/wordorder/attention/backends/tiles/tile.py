"""Tiles of the (H, T, S) scores, which are never written out; the attention mask and dropout of one tile."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, cast

import torch
from torch import Tensor

from wordorder.ops import Mask, Packed

ROW_TILE = 262_144
"""Elements of a tile of whole rows: 1 MiB of float32, about the second-level cache of one core."""
SQUARE_TILE = (256, 512)
"""Rows and keys of a tile where rows need not be whole: long enough for the matrix products to be efficient."""
BAND_ROWS = 64
"""Rows of a tile where the mask is a band of diagonals: the fewer rows, the less is computed outside the band."""
WIDEST_SPAN = 1024
"""Most diagonals of a band of which a tile holds all keys that its rows see: at 4,096 tokens and 512 diagonals three
quarters of the time of two tiles of 64 rows."""
LEVELS = 65_536
"""Probabilities of dropout are multiples of one over this: 16 random bits a weight take a fifth of a Bernoulli draw's
time."""


class TileSlice(NamedTuple):
    """The heads, rows and columns of the matrix that form a tile."""

    heads: slice
    rows: slice
    keys: slice

    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of heads, rows and columns."""
        heads, rows, keys = self
        return heads.stop - heads.start, rows.stop - rows.start, keys.stop - keys.start

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


def square_tile(
    heads: int, queries: int, keys: int, *, band: bool = False, span: int | None = None
) -> tuple[int, int, int]:
    """Return heads, rows and keys of a tile of parts of rows.

    ``band``: the mask is a band of diagonals; ``span``: of so many, where both sides of it are limited.
    """
    rows, columns = max(1, min(queries, SQUARE_TILE[0])), max(1, min(keys, SQUARE_TILE[1]))
    elements = SQUARE_TILE[0] * SQUARE_TILE[1]
    if band:
        rows, elements = min(rows, BAND_ROWS), max(elements, ROW_TILE)
    if span is not None and span <= WIDEST_SPAN and columns < keys:
        if 2 * span <= WIDEST_SPAN:
            rows = min(queries, 2 * BAND_ROWS)
        columns, elements = min(keys, span + rows - 1), 2 * elements
    return max(1, min(heads, elements // (rows * columns))), rows, columns


def bands(heads: int, queries: int, keys: int, shape: tuple[int, int, int]) -> Iterator[TileSlice]:
    """Yield the rows of tiles of this shape, with all keys; those at the ends may be smaller. No keys, no rows."""
    for head in range(0, heads, shape[0]):
        for row in range(0, queries if keys else 0, shape[1]):
            rows = slice(row, min(row + shape[1], queries))
            yield TileSlice(slice(head, min(head + shape[0], heads)), rows, slice(0, keys))


def tiles_of(band: TileSlice, columns: int, seen: slice | None = None) -> Iterator[TileSlice]:
    """Cut a band of rows into tiles of so many columns; only those that hold some of the keys that are ``seen``."""
    seen = band.keys if seen is None else seen
    for key in range(seen.start, seen.stop, columns):
        yield band._replace(keys=slice(key, min(key + columns, band.keys.stop)))


class TileMask:
    """The mask of a call, read once per forward.

    Padding after the text, the common case, costs nothing: the example's keys simply end earlier. With a mask that is a
    band of diagonals (causal, within a distance, ahead) tiles outside the band are skipped. Any other mask (padding
    before the text, packed sequences, a mask tensor) is written out tile by tile.
    """

    def __init__(
        self, mask: Mask | Tensor | None, *, batch: int, queries: int, keys: int, device: torch.device
    ) -> None:
        self.mask, self.batch, self.queries, self.keys, self.device = mask, batch, queries, keys, device
        self.stops: list[int] | None = None
        self.lowest: int | None = None
        self.highest: int | None = None
        self.with_band: Mask | Tensor | None = mask
        self.rest: Mask | Tensor | None = mask
        self.of_band: tuple[object, list[Tensor | None]] = None, []
        """A tile's offset to the diagonals, and the tensors added at that offset: most tiles of a band share it."""
        if isinstance(mask, Mask) and not isinstance(mask.key, Packed):
            self._read(mask)

    @property
    def is_band(self) -> bool:
        """Tell whether the mask limits the diagonals, so that whole tiles may be hidden."""
        return self.lowest is not None or self.highest is not None

    @property
    def span(self) -> int | None:
        """The number of diagonals of the band; None where a side of it is not limited."""
        return None if self.lowest is None or self.highest is None else self.highest - self.lowest + 1

    def keys_seen(self, rows: slice, example: int | None = None) -> slice:
        """Return the range of keys outside of which all are hidden from all these rows; it may be empty.

        In one example, or in all of them.
        """
        start, stop = 0, self.keys
        if self.stops is not None:
            stop = max(self.stops, default=0) if example is None else self.stops[example]
        if self.lowest is not None:
            start = max(start, rows.start + self.lowest)
        if self.highest is not None:
            stop = min(stop, rows.stop + self.highest)
        return slice(start, max(start, stop))

    def parts(self, tile: TileSlice) -> list[tuple[int, TileSlice, slice]]:
        """Return each example that sees some of the tile, the part that it sees, and the columns of that part."""
        parts: list[tuple[int, TileSlice, slice]] = []
        for example in range(self.batch):
            part = tile.limited_to(self.keys_seen(tile.rows, example))
            if part.keys.start < part.keys.stop:
                parts.append((example, part, tile.columns_of(part)))
        return parts

    def added(self, tile: TileSlice, dtype: torch.dtype) -> list[Tensor | None]:
        """Return for each example what is added to its scores: 0, or -inf where hidden; None = nothing is hidden.

        The tensors broadcast to the tile, and examples with the same mask share one. Adding takes an eighth of the time
        of `masked_fill`.
        """
        _, rows, keys = tile
        offset_and_shape = (keys.start - rows.start, rows.stop - rows.start, keys.stop - keys.start, dtype)
        if self.rest is None and self.of_band[0] == offset_and_shape:
            return self.of_band[1]
        visible_BHRE = self._visible(tile)
        if visible_BHRE is None:
            return [None] * self.batch
        zeros_BHRE = torch.zeros(visible_BHRE.shape, dtype=dtype, device=visible_BHRE.device)
        added = list(zeros_BHRE.masked_fill_(~visible_BHRE, -torch.inf))
        of_examples: list[Tensor | None] = [*added] * self.batch if len(added) == 1 else [*added]
        if self.rest is None:
            self.of_band = offset_and_shape, of_examples
        return of_examples

    def _visible(self, tile: TileSlice) -> Tensor | None:
        """Return the mask of the tile, bool (B or 1, H or 1, R or 1, E or 1); None = nothing is hidden."""
        _, rows, keys = tile
        # a tile within the band needs no comparison
        low_is_met = self.lowest is None or keys.start - (rows.stop - 1) >= self.lowest
        high_is_met = self.highest is None or keys.stop - 1 - rows.start <= self.highest
        mask = self.rest if low_is_met and high_is_met else self.with_band
        if mask is None or isinstance(mask, Mask):
            return None if mask is None else mask.tile(rows, keys, self.device)
        full = mask.expand(-1, -1, self.queries, self.keys)
        return full[:, tile.heads if full.shape[1] > 1 else slice(0, 1), rows, keys]

    def _read(self, mask: Mask) -> None:
        """Turn padding at the end into numbers, which need no matrix, and note the diagonals; keep the rest."""
        tokens_BS = mask.tokens_BS
        if tokens_BS is not None:
            count_B = tokens_BS.sum(-1)
            if bool((tokens_BS == (torch.arange(self.keys, device=tokens_BS.device) < count_B[:, None])).all()):
                counts = cast("list[int]", count_B.tolist())  # pyright: ignore[reportUnknownMemberType]
                self.stops, tokens_BS = (counts * self.batch if len(counts) == 1 else counts), None
        self.with_band = rest = replace(mask, tokens_BS=tokens_BS)
        if mask.diagonals is not None:
            self.lowest, self.highest = mask.diagonals
            rest = replace(rest, low=None, high=None)
        self.rest = None if rest.hides_nothing else rest


class Dropout:
    """A random mask that depends on the seed and on the tile's position only, so that both passes draw the same."""

    def __init__(self, probability: float, *, batch: int, queries: int, keys: int) -> None:
        self.level = min(round(probability * LEVELS), LEVELS - 1)
        self.probability = self.level / LEVELS
        self.batch, self.queries, self.keys = batch, queries, keys
        self.seed = int(torch.randint(2**62, (), device="cpu").item())

    @classmethod
    def of(cls, probability: float, *, batch: int, queries: int, keys: int) -> "Dropout | None":
        """Return the mask; None, and nothing drawn, where the probability rounds to 0."""
        rounds_to_0 = round(probability * LEVELS) == 0
        return None if rounds_to_0 else cls(probability, batch=batch, queries=queries, keys=keys)

    @property
    def rescale(self) -> float:
        """Return the factor on the weights that are kept."""
        return 1 / (1 - self.probability)

    def keep_mask(self, example: int, tile: TileSlice) -> Tensor:
        """Draw the mask of one example's tile, bool, True = the weight is kept."""
        number = (self.batch * tile.heads.start + example) * self.queries + tile.rows.start
        number = number * self.keys + tile.keys.start
        generator = torch.Generator("cpu")
        generator.manual_seed((self.seed + 0x9E3779B97F4A7C15 * number) % 2**63)
        bits = torch.empty(-(-tile.size() // 4), dtype=torch.int64, device="cpu")
        bits.random_(-(2**63), None, generator=generator)
        return bits.view(torch.int16)[: tile.size()].view(tile.shape()) >= self.level - LEVELS // 2
