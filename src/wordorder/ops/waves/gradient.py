"""The gradients of words as waves, tile by tile, from what the forward pass returned."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from wordorder.ops.waves.tables import WaveTables

_TILE_ROWS = 256
"""Tokens per step on a CPU: a few tensors of 256 rows stay in its cache."""

_Where = tuple[slice, slice]
"""The slices of examples and of tokens that make up a tile."""


@dataclass(frozen=True)
class WaveGradient:
    """One backward pass of `waves`; `wordorder.ops.waves.functions` has the equations.

    Args:
        ids: (B, T).
        position: (B or 1, T).
        wanted: whether amplitude, frequency, phase and decay need a gradient.
    """

    ids: Tensor
    position: Tensor
    tables: WaveTables
    padding_idx: int | None
    sparse: bool
    wanted: tuple[bool, ...]

    def by_kernel(self, kernel: Any, upstream: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        """Compute gradients in one kernel, with sines computed again: on a GPU they cost less than reading outputs."""
        given = self.tables.given()
        channels = self.tables.channels
        parts = kernel.backward(self.ids, self.position, given, channels, self.padding_idx, upstream, self.wanted)
        totals = [_TableGradient(self, table) if want else None for table, want in zip(given, self.wanted, strict=True)]
        for total, part in zip(totals, parts, strict=True):
            if total is not None:
                total.add(part, None, self.ids, (slice(None), slice(None)))
        return tuple(None if total is None else total.done() for total in totals)

    def by_tiles(
        self, upstream: tuple[Tensor, ...], outputs: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor | None, ...]:
        """Compute gradients by tiles of a few hundred tokens that stay in the cache."""
        given, wide = self.tables.given(), self.tables.wide
        totals = [_TableGradient(self, table) if want else None for table, want in zip(given, self.wanted, strict=True)]
        shared = None if outputs is not None else self._shared_waves()
        for where in _tiles(self.ids):
            ids, step = self.ids[where], _part(self.tables.steps(self.position), where)
            g, h = (gradient[where].to(wide) for gradient in upstream)
            tile = None if outputs is None else self._from_outputs(where, g, h, outputs)
            amplitudes, angles, moduli = tile or self._from_angles(where, g, h, shared)
            weights: list[Tensor | None] = [None, step, None, None]
            if totals[3] is not None:
                rate = self.tables.rows(cast("Tensor", self.tables.decay), ids).sigmoid()
                moduli, weights[3] = moduli * rate, -step.clamp(min=0)
            for total, part, weight in zip(totals, (amplitudes, angles, angles, moduli), weights, strict=True):
                if total is not None:
                    total.add(part, weight, ids, where)
        return tuple(None if total is None else total.done() for total in totals)

    def _from_outputs(
        self, where: _Where, g: Tensor, h: Tensor, outputs: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return dr, da and dm m of a tile; None where an amplitude is so near 0 that dm m / r has lost its digits."""
        real, imag = (output[where] for output in outputs)
        r = self.tables.rows(self.tables.amplitude, self.ids[where])
        if self.padding_idx is not None:  # its outputs are 0: 0 / 1 is its gradient
            r = r.masked_fill((self.ids[where] == self.padding_idx)[..., None], 1)
        if r.abs().min() < 1e-30:
            return None
        moduli = torch.mul(g, real).addcmul_(h, imag)
        angles = torch.mul(h, real).addcmul_(g, imag, value=-1)
        return moduli / r, angles, moduli

    def _from_angles(
        self, where: _Where, g: Tensor, h: Tensor, shared: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same gradients from cosines and sines, exact for every amplitude."""
        ids, position = self.ids[where], _part(self.position, where)
        if shared is None:
            angle = self.tables.angle(ids, position)
            cos, sin = angle.cos(), angle.sin()
        else:
            cos, sin = (_part(wave, where) for wave in shared)
        damping = self.tables.damping(ids, position)
        modulus = self.tables.modulus(ids, position)
        along, across = (g * cos).addcmul_(h, sin), (h * cos).addcmul_(g, sin, value=-1)
        if self.padding_idx is not None:
            padding = (ids == self.padding_idx)[..., None]
            along, across = along.masked_fill_(padding, 0), across.masked_fill_(padding, 0)
        amplitudes = along if damping is None else along * damping
        return amplitudes, across * modulus, along * modulus

    def _shared_waves(self) -> tuple[Tensor, Tensor] | None:
        """Return the cosines and sines of all tokens at once where words and examples share them; else None."""
        turning = [table for table in (self.tables.frequency, self.tables.phase) if table is not None]
        if self.position.shape[0] > 1 or any(table.shape[0] > 1 for table in turning):
            return None
        angle = self.tables.angle(self.ids, self.position)
        return angle.cos(), angle.sin()


def _tiles(ids: Tensor) -> Iterator[_Where]:
    """Yield slices of (B, T) of at most a few hundred tokens on a CPU; on other devices one slice of everything."""
    batch, length = ids.shape
    if ids.device.type != "cpu":
        yield slice(None), slice(None)
        return
    rows = max(1, _TILE_ROWS // max(1, length))
    for b in range(0, batch, rows):
        for t in range(0, length, _TILE_ROWS):
            yield slice(b, b + rows), slice(t, t + _TILE_ROWS)


def _part(tensor: Tensor, where: _Where) -> Tensor:
    """Return a tile of a tensor of shape (B or 1, T or 1, ...)."""
    rows, tokens = where
    return tensor[rows if tensor.shape[0] > 1 else slice(None), tokens if tensor.shape[1] > 1 else slice(None)]


class _TableGradient:
    """The gradient of one table, collected tile by tile and put together at the end."""

    def __init__(self, call: WaveGradient, table: Tensor | None) -> None:
        assert table is not None
        self.call, self.table = call, table
        self.by_word, self.by_channel = table.shape[0] > 1, table.shape[1] == call.tables.channels
        shape = (*call.ids.shape, table.shape[1]) if self.by_word else table.shape
        make = torch.empty if self.by_word else torch.zeros
        self.total = make(shape, dtype=torch.promote_types(table.dtype, torch.float32), device=table.device)

    def add(self, part: Tensor, weight: Tensor | None, ids: Tensor, where: _Where) -> None:
        """Add the gradient (b, t, D) of a tile's tokens, times a weight per token (b or 1, t, 1)."""
        full = part.expand(*ids.shape, self.call.tables.channels)
        if self.by_word and self.by_channel:
            target = self.total[where]
            target.copy_(full) if weight is None else torch.mul(full, weight, out=target)
        elif self.by_word:
            total = full.sum(-1, keepdim=True)
            self.total[where] = total if weight is None else total * weight
        else:
            weights_1N = (torch.ones_like(full[..., :1]) if weight is None else weight).expand(*ids.shape, 1).flatten()
            summed = weights_1N[None] @ full.flatten(0, 1)
            self.total += summed if self.by_channel else summed.sum(1, keepdim=True)

    def done(self) -> Tensor:
        """Return the gradient, of the table's shape and dtype."""
        if not self.by_word:
            return self.total.to(self.table.dtype)
        vocabulary = self.table.shape[0]
        if not self.call.sparse:
            return _sum_by_word(self.total, self.call.ids, vocabulary).to(self.table.dtype)
        words_U, which_BT = cast("Any", torch).unique(self.call.ids, return_inverse=True)
        rows_UD = _sum_by_word(self.total, which_BT, len(words_U)).to(self.table.dtype)
        return cast("Any", torch).sparse_coo_tensor(
            words_U[None], rows_UD, self.table.shape, is_coalesced=True, check_invariants=False
        )


def _sum_by_word(rows_BTD: Tensor, ids_BT: Tensor, words: int) -> Tensor:
    """Sum rows by word, as nn.Embedding's own backward does; torch has no public name for it."""
    return torch.ops.aten.embedding_dense_backward(rows_BTD, ids_BT, words, -1, False)
