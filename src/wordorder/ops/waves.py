"""Words as waves over positions: rows of tables turned by an angle; the backward pass keeps the outputs alone.

Wang et al. 2020, "Encoding word order in complex embeddings", https://arxiv.org/abs/1912.12333, Eq. 8, for token j at
position p, with amplitude r, frequency w [radians per token], initial phase theta [radians] and, beyond the paper, the
decay rate softplus(c) [1 / token]::

    m = r_j exp(-softplus(c_j) max(p, 0)),   a = w_j p + theta_j,   real = m cos a,   imag = m sin a

Every table is (V, D), or (1, D) where all words share it, or (V, 1) where all channels do. Given the gradients g and h
of real and imag, the backward pass needs no more than the outputs themselves::

    m dm = g real + h imag,   da = h real - g imag,   dr = m dm / r,   dw = p da,   dtheta = da,
    dc = -max(p, 0) sigmoid(c) m dm

so that nothing but the outputs, which the next layer keeps anyway, stays in memory. Near r = 0 the cosine and sine are
computed anew. Where they are cheap (shared by a batch, or by all channels) they are computed anew always.
"""

# torch's autograd functions are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.ops.execution import no_autocast, transformed

_TILE_ROWS = 256
"""Tokens per step on a CPU: a few tensors of 256 rows stay in its cache."""

_Tile = tuple[slice, slice]
"""The slices of examples and of tokens that make up a tile."""


@dataclass(frozen=True)
class WaveTables:
    """Tables of one dtype, each (V, D), or (1, D) where all words share it, or (V, 1) where all channels do."""

    amplitude: Tensor
    """r."""
    frequency: Tensor | None = None
    """w, radians per token; None = no position (w = 0)."""
    phase: Tensor | None = None
    """theta, radians, of any size; wrapped to (-pi, pi] where it is read. None = 0."""
    decay: Tensor | None = None
    """c, of which softplus is the rate of decay per token, which therefore is never negative; None = no decay."""
    width: int | None = None
    """Channels, D; None = those of the widest table."""
    padding_idx: int | None = None
    """Token id that is exactly 0 and sends no gradient, whatever its tables are."""

    def all_four(self) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Return amplitude, frequency, phase and decay."""
        return (self.amplitude, self.frequency, self.phase, self.decay)

    @property
    def channels(self) -> int:
        """Number of channels, D."""
        return self.width or max(table.shape[1] for table in self.all_four() if table is not None)

    @property
    def wide(self) -> torch.dtype:
        """Dtype of angles: float64 for float64, else float32."""
        return torch.promote_types(self.amplitude.dtype, torch.float32)

    def rows(self, table: Tensor, ids_BT: Tensor) -> Tensor:
        """Return a table's rows in the precision of angles, (B, T, D or 1), or (1, 1, D) where all words share them."""
        rows = table[None] if table.shape[0] == 1 else F.embedding(ids_BT, table)
        return rows.to(self.wide)

    def steps(self, position_BT: Tensor) -> Tensor:
        """Return the positions in the precision of angles, (B or 1, T, 1)."""
        return position_BT.to(self.wide)[..., None]

    def angle(self, ids_BT: Tensor, position_BT: Tensor) -> Tensor:
        """Return ``w p + theta``: a new tensor, broadcastable to (B, T, D) and as small as sharing allows."""
        phase = None if self.phase is None else wrap_phase(self.rows(self.phase, ids_BT))
        if self.frequency is None:
            return self.amplitude.new_zeros(1, 1, 1, dtype=self.wide) if phase is None else phase
        frequency, steps = self.rows(self.frequency, ids_BT), self.steps(position_BT)
        return frequency * steps if phase is None else torch.addcmul(phase, frequency, steps)

    def damping(self, ids_BT: Tensor, position_BT: Tensor) -> Tensor | None:
        """Return ``exp(-softplus(c) max(p, 0))``, at most 1; None where nothing decays."""
        if self.decay is None:
            return None
        return torch.exp(-F.softplus(self.rows(self.decay, ids_BT)) * self.steps(position_BT).clamp(min=0))

    def modulus(self, ids_BT: Tensor, position_BT: Tensor) -> Tensor:
        """Return ``r exp(-softplus(c) max(p, 0))``, 0 for padding, broadcastable to (B, T, D)."""
        amplitude, damping = self.rows(self.amplitude, ids_BT), self.damping(ids_BT, position_BT)
        return self.at_padding(amplitude if damping is None else amplitude * damping, ids_BT, 0)

    def at_padding(self, x_BTD: Tensor, ids_BT: Tensor, value: float) -> Tensor:
        """Return x with another value for padding."""
        if self.padding_idx is None:
            return x_BTD
        return x_BTD.masked_fill((ids_BT == self.padding_idx)[..., None], value)


def wrap_phase(phase: Tensor) -> Tensor:
    """Wrap angles of any shape to (-pi, pi], with gradient 1; angles that lie there already are not changed."""
    turn = 2 * torch.pi
    turns = (phase.detach() - torch.pi).div_(turn).ceil_()
    return torch.sub(phase, turns, alpha=turn)


def plain_waves(token_ids_BT: Tensor, position_BT: Tensor, tables: WaveTables) -> tuple[Tensor, Tensor]:
    """Compute `waves` as the formula stands: for compilers, exporters and second derivatives."""
    angle = tables.angle(token_ids_BT, position_BT)
    modulus = tables.modulus(token_ids_BT, position_BT)
    shape, dtype = (*token_ids_BT.shape, tables.channels), tables.amplitude.dtype
    return (modulus * angle.cos()).to(dtype).expand(shape), (modulus * angle.sin()).to(dtype).expand(shape)


def waves(
    token_ids_BT: Tensor, position_BT: Tensor, tables: WaveTables, *, sparse: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the real and imaginary part of every token's wave at its position.

    The fastest exact path is taken: the plain formula under torch.compile and export, whose compilers fuse it, and
    under torch.func; else the gradient of the module's equations. A second derivative is taken through the plain
    formula.

    Args:
        token_ids_BT: rows of the tables, long (B, T).
        position_BT: where the tokens stand, any integers, (B or 1, T).
        tables: amplitude, frequency, phase, decay.
        sparse: gradients of tables of V rows are sparse, one coalesced row per distinct token of the batch; tables that
            all words share keep dense ones. Compilers know no sparse gradients: torch.compile breaks its graph.

    Returns:
        real and imag, (B, T, D) each, in the tables' dtype; angles are in at least float32, float64 for float64.
    """
    if sparse:
        outside: Any = torch.compiler.disable(_apply)  # not at import, which would load the compiler
        return outside(token_ids_BT, position_BT, tables, sparse)
    if torch.compiler.is_compiling():
        return plain_waves(token_ids_BT, position_BT, tables)
    return _apply(token_ids_BT, position_BT, tables, sparse)


def _apply(ids: Tensor, position: Tensor, tables: WaveTables, sparse: bool) -> tuple[Tensor, Tensor]:
    if transformed():
        return plain_waves(ids, position, tables)
    return _Waves.apply(ids, position, tables.width, tables.padding_idx, sparse, *tables.all_four())


class _Waves(torch.autograd.Function):
    """The autograd function of `waves`, with the gradients of the module's equations."""

    @staticmethod
    def forward(
        ctx: Any,
        ids: Tensor,
        position: Tensor,
        width: int | None,
        padding_idx: int | None,
        sparse: bool,
        *all_four: Any,
    ) -> tuple[Tensor, Tensor]:
        real, imag, keep = _forward(ids, position, WaveTables(*all_four, width=width, padding_idx=padding_idx))
        ctx.width, ctx.padding_idx, ctx.sparse = width, padding_idx, sparse
        ctx.save_for_backward(ids, position, *((real, imag) if keep else (None, None)), *all_four)
        return real, imag

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        ids, position, real, imag, *all_four = ctx.saved_tensors
        tables = WaveTables(*all_four, width=ctx.width, padding_idx=ctx.padding_idx)
        learns, others = ctx.needs_input_grad[5:], (None,) * 5
        if torch.is_grad_enabled():
            if ctx.sparse:
                raise RuntimeError("a second derivative needs dense gradients: build the embedding with sparse=False")
            return *others, *_differentiable(ids, position, tables, learns, upstream)
        gradient = WaveGradient(ids, position, tables, ctx.sparse, learns)
        with no_autocast(ids.device):
            return *others, *gradient.by_tiles(upstream, None if real is None else (real, imag))


def _forward(ids: Tensor, position: Tensor, tables: WaveTables) -> tuple[Tensor, Tensor, bool]:
    """Return the outputs, and whether to keep them for the backward pass, which would else compute many sines."""
    shape = torch.Size((*ids.shape, tables.channels))
    angle = tables.angle(ids, position)
    modulus = tables.modulus(ids, position)
    dtype = tables.amplitude.dtype
    if angle.shape == shape:  # every token its own sines: in place, page faults cost as much as the sines
        real, imag = angle.cos().mul_(modulus), angle.sin_().mul_(modulus)
        return real.to(dtype), imag.to(dtype), dtype == angle.dtype and ids.device.type == "cpu"
    real, imag = (torch.mul(modulus, wave).expand(shape) for wave in (angle.cos(), angle.sin()))
    return real.to(dtype).contiguous(), imag.to(dtype).contiguous(), False


def _differentiable(
    ids: Tensor,
    position: Tensor,
    tables: WaveTables,
    learns: tuple[bool, ...],
    upstream: tuple[Tensor, ...],
) -> tuple[Tensor | None, ...]:
    inputs = [table for table, want in zip(tables.all_four(), learns, strict=True) if want and table is not None]
    outputs = plain_waves(ids, position, tables)
    gradients = iter(torch.autograd.grad(outputs, inputs, upstream, create_graph=True, allow_unused=True))
    return tuple(next(gradients) if want else None for want in learns)


@dataclass(frozen=True)
class WaveGradient:
    """One backward pass of `waves`, tile by tile, from what the forward pass returned."""

    ids: Tensor
    position: Tensor
    tables: WaveTables
    sparse: bool
    learns: tuple[bool, ...]
    """Whether amplitude, frequency, phase and decay need a gradient."""

    def by_tiles(
        self, upstream: tuple[Tensor, ...], outputs: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor | None, ...]:
        """Compute gradients by tiles of a few hundred tokens that stay in the cache."""
        totals, wide = self._totals(), self.tables.wide
        shared = None if outputs is not None else self._shared_waves()
        for where in _tiles(self.ids):
            ids, step = self.ids[where], _part(self.tables.steps(self.position), where)
            g, h = (gradient[where].to(wide) for gradient in upstream)
            tile = None if outputs is None else self._from_outputs(where, g, h, outputs)
            amplitudes, angles, moduli = tile or self._from_angles(where, g, h, shared)
            weights: list[Tensor | None] = [None, step, None, None]
            if totals[3] is not None:
                rate = self.tables.rows(totals[3].table, ids).sigmoid()
                moduli, weights[3] = moduli * rate, -step.clamp(min=0)
            for total, part, weight in zip(totals, (amplitudes, angles, angles, moduli), weights, strict=True):
                if total is not None:
                    total.add(part, weight, ids, where)
        return tuple(None if total is None else total.done() for total in totals)

    def _totals(self) -> "list[_TableGradient | None]":
        return [
            _TableGradient(self, table) if want and table is not None else None
            for table, want in zip(self.tables.all_four(), self.learns, strict=True)
        ]

    def _from_outputs(
        self, where: _Tile, g: Tensor, h: Tensor, outputs: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return dr, da and dm m of a tile; None where an amplitude is so near 0 that dm m / r has lost its digits."""
        real, imag = (output[where] for output in outputs)
        # the outputs of padding are 0: 0 / 1 is its gradient
        r = self.tables.at_padding(self.tables.rows(self.tables.amplitude, self.ids[where]), self.ids[where], 1)
        if r.abs().min() < 1e-30:
            return None
        moduli = torch.mul(g, real).addcmul_(h, imag)
        angles = torch.mul(h, real).addcmul_(g, imag, value=-1)
        return moduli / r, angles, moduli

    def _from_angles(
        self, where: _Tile, g: Tensor, h: Tensor, shared: tuple[Tensor, Tensor] | None
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
        amplitudes = self.tables.at_padding(along if damping is None else along * damping, ids, 0)
        return amplitudes, across * modulus, along * modulus

    def _shared_waves(self) -> tuple[Tensor, Tensor] | None:
        """Return the cosines and sines of all tokens at once where words and examples share them; else None."""
        turning = [table for table in (self.tables.frequency, self.tables.phase) if table is not None]
        if self.position.shape[0] > 1 or any(table.shape[0] > 1 for table in turning):
            return None
        angle = self.tables.angle(self.ids, self.position)
        return angle.cos(), angle.sin()


def _tiles(ids: Tensor) -> Iterator[_Tile]:
    """Yield slices of (B, T) of at most a few hundred tokens on a CPU; on other devices one slice of everything."""
    batch, length = ids.shape
    if ids.device.type != "cpu":
        yield slice(None), slice(None)
        return
    rows = max(1, _TILE_ROWS // max(1, length))
    for b in range(0, batch, rows):
        for t in range(0, length, _TILE_ROWS):
            yield slice(b, b + rows), slice(t, t + _TILE_ROWS)


def _part(tensor: Tensor, where: _Tile) -> Tensor:
    """Return a tile of a tensor of shape (B or 1, T or 1, ...)."""
    rows, tokens = where
    return tensor[rows if tensor.shape[0] > 1 else slice(None), tokens if tensor.shape[1] > 1 else slice(None)]


class _TableGradient:
    """The gradient of one table, collected tile by tile and put together at the end."""

    def __init__(self, call: WaveGradient, table: Tensor) -> None:
        self.call, self.table = call, table
        self.by_word, self.by_channel = table.shape[0] > 1, table.shape[1] == call.tables.channels
        shape = (*call.ids.shape, table.shape[1]) if self.by_word else table.shape
        make = torch.empty if self.by_word else torch.zeros
        self.total = make(shape, dtype=torch.promote_types(table.dtype, torch.float32), device=table.device)

    def add(self, part: Tensor, weight: Tensor | None, ids: Tensor, where: _Tile) -> None:
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
        if not self.call.sparse:
            return _sum_by_word(self.total, self.call.ids, len(self.table)).to(self.table.dtype)
        words_U, which_BT = torch.unique(self.call.ids, return_inverse=True)
        rows_UD = _sum_by_word(self.total, which_BT, len(words_U)).to(self.table.dtype)
        return torch.sparse_coo_tensor(
            words_U[None], rows_UD, self.table.shape, is_coalesced=True, check_invariants=False
        )


def _sum_by_word(rows_BTD: Tensor, ids_BT: Tensor, words: int) -> Tensor:
    """Sum rows by word, as nn.Embedding's own backward does; torch has no public name for it."""
    return torch.ops.aten.embedding_dense_backward(rows_BTD, ids_BT, words, -1, False)
