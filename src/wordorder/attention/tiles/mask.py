"""The attention mask, one tile at a time: fully masked keys are not computed, and the rest is masked where needed."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from wordorder.attention.tiles.geometry import TileSlice
from wordorder.ops import Packed, Visibility


class TileMask:
    """The mask of a call, read once per forward.

    Padding after the text, the common case, costs nothing: the example's keys simply end earlier. With a mask that is a
    band of diagonals (causal, within a distance, ahead) tiles outside the band are skipped. Any other mask (padding
    before the text, packed sequences, a mask tensor) is written out tile by tile.

    Args:
        mask: which keys each query sees; a bool tensor broadcasts to (B, H, T, S), True = visible; None = all.
        batch: B.
        queries: T.
        keys: S.
    """

    def __init__(
        self, mask: Visibility | Tensor | None, *, batch: int, queries: int, keys: int, device: torch.device
    ) -> None:
        self.mask, self.batch, self.queries, self.keys, self.device = mask, batch, queries, keys, device
        self.stops: list[int] | None = None
        self.lowest: int | None = None
        self.highest: int | None = None
        self.rest: Visibility | Tensor | None = mask
        if isinstance(mask, Visibility):
            self._read(mask)

    @property
    def hides(self) -> bool:
        """Tell whether there is a mask, so that a query may see no key at all."""
        return self.mask is not None

    @property
    def is_band(self) -> bool:
        """Tell whether the mask limits the diagonals, so that whole tiles may be hidden."""
        return self.lowest is not None or self.highest is not None

    def keys_seen(self, example: int, rows: slice) -> slice:
        """Return the range of keys outside of which all are hidden from all these rows; it may be empty."""
        start, stop = 0, self.keys if self.stops is None else self.stops[example]
        if self.lowest is not None:
            start = max(start, rows.start + self.lowest)
        if self.highest is not None:
            stop = min(stop, rows.stop + self.highest)
        return slice(start, max(start, stop))

    def tiles(self, tile: TileSlice, dtype: torch.dtype) -> "list[Tensor | None]":
        """Return for each example what is added to its scores: 0, or -inf where hidden; None = nothing is hidden.

        The tensors broadcast to the tile, and examples with the same mask share one. Adding takes an eighth of the time
        of `masked_fill`.
        """
        written: dict[int, Tensor] = {}
        found: list[Tensor | None] = []
        for hidden in self._hidden_pairs(tile):
            if hidden is not None and id(hidden) not in written:
                zeros = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
                written[id(hidden)] = zeros.masked_fill_(hidden, -torch.inf)
            found.append(None if hidden is None else written[id(hidden)])
        return found

    def _hidden_pairs(self, tile: TileSlice) -> "list[Tensor | None]":
        """Return for each example a bool tensor, True = hidden; None = nothing is hidden."""
        hidden: list[Tensor | None] = [None] * self.batch
        if self.mask is None:
            return hidden
        outside_RE = self._outside_band(tile)
        if outside_RE is not None:
            hidden = [outside_RE] * self.batch
        if self.rest is None:
            return hidden
        if isinstance(self.rest, Visibility):
            visible = self.rest.tile(tile.rows, tile.keys, self.device)
            if visible is None:
                return hidden
            rest = list((~visible).expand(self.batch, -1, -1, -1))
        else:
            full = self.rest.expand(self.batch, -1, self.queries, self.keys) if self.rest.dim() == 4 else self.rest
            full = full.expand(self.batch, full.shape[-3] if full.dim() > 2 else 1, self.queries, self.keys)
            heads = tile.heads if full.shape[1] > 1 else slice(0, 1)
            rest = list(~full[:, heads, tile.rows, tile.keys])
        return [one if other is None else one | other for one, other in zip(rest, hidden, strict=True)]

    def _outside_band(self, tile: TileSlice) -> Tensor | None:
        """Return the pairs of the tile outside the band of diagonals, bool (R, E); None if there are none."""
        rows, keys = tile.rows, tile.keys
        lowest = None if self.lowest is None or keys.start - (rows.stop - 1) >= self.lowest else self.lowest
        highest = None if self.highest is None or keys.stop - 1 - rows.start <= self.highest else self.highest
        if lowest is None and highest is None:
            return None
        row_R1 = torch.arange(rows.start, rows.stop, device=self.device)[:, None]
        key_E = torch.arange(keys.start, keys.stop, device=self.device)
        below_RE = None if lowest is None else key_E < row_R1 + lowest
        above_RE = None if highest is None else key_E > row_R1 + highest
        if below_RE is None or above_RE is None:
            return above_RE if below_RE is None else below_RE
        return below_RE | above_RE

    def _read(self, mask: Visibility) -> None:
        """Turn padding at the end and diagonals into numbers, which need no matrix; keep the rest of the mask."""
        if isinstance(mask.key, Packed):
            return
        valid_BS = mask.valid_BS
        if valid_BS is not None:
            count_B = valid_BS.sum(-1)
            if bool((valid_BS == (torch.arange(self.keys, device=valid_BS.device) < count_B[:, None])).all()):
                counts = cast("list[int]", count_B.tolist())  # pyright: ignore[reportUnknownMemberType]
                self.stops, valid_BS = (counts * self.batch if len(counts) == 1 else counts), None
        rest = replace(mask, valid_BS=valid_BS)
        if mask.diagonals is not None:
            self.lowest, self.highest = mask.diagonals
            rest = replace(rest, causal=False, ahead=False, within=None)
        self.rest = None if rest.hides_nothing else rest
