"""Who sees whom, a tile at a time: keys that nobody sees are never computed, the rest is masked where it has to be."""

from typing import cast

import torch
from torch import Tensor

from wordorder.attention.tiles.geometry import Where
from wordorder.ops import Packed, Visibility
from wordorder.ops.positions import shift_between


class Hidden:
    """The mask of a call, read once per forward.

    Padding after the text, the common case, costs nothing: the example's keys simply end earlier. Causal masks let the
    tiles above the diagonal be skipped. Whatever else there is (padding before the text, packed sequences, a mask
    tensor) is written out tile by tile.

    Args:
        mask: who sees whom; a bool tensor broadcasts to (B, H, T, S), True = visible; None hides nothing.
        batch: B.
        queries: T.
        keys: S.
        device: of the scores.
    """

    def __init__(
        self, mask: Visibility | Tensor | None, *, batch: int, queries: int, keys: int, device: torch.device
    ) -> None:
        self.mask, self.batch, self.queries, self.keys, self.device = mask, batch, queries, keys, device
        self.stops: list[int] | None = None
        self.shift: int | None = None
        self.rest: Visibility | Tensor | None = mask
        if isinstance(mask, Visibility):
            self._read(mask)

    @property
    def hides(self) -> bool:
        """Whether a query may see nothing at all."""
        return self.mask is not None

    def keys_seen(self, example: int, rows: slice) -> int:
        """Keys from here on are hidden from all these rows."""
        stop = self.keys if self.stops is None else self.stops[example]
        if self.shift is not None:
            stop = min(stop, max(0, rows.stop - self.shift))
        return stop

    def tiles(self, where: Where) -> "list[Tensor | None]":
        """Per example the hidden places, bool, broadcast to the tile; None where nothing is hidden."""
        hidden: list[Tensor | None] = [None] * self.batch
        if self.mask is None:
            return hidden
        if self.shift is not None and where.keys.stop - 1 > where.rows.start - self.shift:
            row_R1 = torch.arange(where.rows.start, where.rows.stop, device=self.device)[:, None]
            future_RE = torch.arange(where.keys.start, where.keys.stop, device=self.device) > row_R1 - self.shift
            hidden = [future_RE] * self.batch
        if self.rest is None:
            return hidden
        if isinstance(self.rest, Visibility):
            visible = self.rest.tile(where.rows, where.keys, self.device)
            if visible is None:
                return hidden
            rest = list((~visible).expand(self.batch, -1, -1, -1))
        else:
            full = self.rest.expand(self.batch, -1, self.queries, self.keys) if self.rest.dim() == 4 else self.rest
            full = full.expand(self.batch, full.shape[-3] if full.dim() > 2 else 1, self.queries, self.keys)
            heads = where.heads if full.shape[1] > 1 else slice(0, 1)
            rest = list(~full[:, heads, where.rows, where.keys])
        return [one if other is None else one | other for one, other in zip(rest, hidden, strict=True)]

    def _read(self, mask: Visibility) -> None:
        """Take out of the mask what needs no matrix: keys that end early, and the triangle."""
        if isinstance(mask.key, Packed):
            return
        valid_BS, causal = mask.valid_BS, mask.causal
        if valid_BS is not None:
            count_B = valid_BS.sum(-1)
            if bool((valid_BS == (torch.arange(self.keys, device=valid_BS.device) < count_B[:, None])).all()):
                counts = cast("list[int]", count_B.tolist())  # pyright: ignore[reportUnknownMemberType]
                self.stops, valid_BS = (counts * self.batch if len(counts) == 1 else counts), None
        shift = shift_between(mask.query, mask.key)
        if causal and shift is not None:
            self.shift, causal = shift, False
        needed = causal or valid_BS is not None
        self.rest = Visibility(mask.query, mask.key, causal=causal, valid_BS=valid_BS) if needed else None
