"""Words as waves over positions: gather rows of tables, turn by an angle; with a backward pass that keeps nothing.

Wang et al. 2020, "Encoding word order in complex embeddings", https://arxiv.org/abs/1912.12333, Eq. 8, for token j at
position p, with amplitude r, frequency w [radians per token], initial phase theta [radians] and, beyond the paper, the
decay rate softplus(c) [1 / token]::

    m = r_j exp(-softplus(c_j) max(p, 0)),   a = w_j p + theta_j,   real = m cos a,   imag = m sin a

Every table is (V, D), or (1, D) where all words share it, or (V, 1) where all channels do. Given the gradients g and h
of real and imag, the backward pass needs no more than the outputs themselves::

    dm m = g real + h imag,   da = h real - g imag,   dr = dm m / r,   dw = p da,   dtheta = da,
    dc = -max(p, 0) sigmoid(c) dm m

so that nothing but the outputs, which the next layer keeps anyway, stays in memory. Near r = 0 the cosine and sine are
computed anew. Where they are cheap (shared by a batch, or by all channels) they are computed anew always.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import torch
from torch import Tensor

from wordorder.ops.execution import transformed
from wordorder.ops.precision import no_autocast
from wordorder.ops.waves.gradient import WaveGradient
from wordorder.ops.waves.tables import WaveTables, plain_waves

__all__ = ["WaveTables", "plain_waves", "row_wise_waves", "waves"]


def waves(
    token_ids_BT: Tensor,
    position_BT: Tensor,
    tables: WaveTables,
    *,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the real and imaginary part of every token's wave at its position.

    The fastest exact path is taken: the plain formula under torch.compile and export, whose compilers fuse it, and
    under torch.func; one kernel on CUDA where Triton is installed; else the gradient of the module's equations. A
    second derivative is taken through the plain formula.

    Args:
        token_ids_BT: rows of the tables, long (B, T).
        position_BT: where the tokens stand, any integers, (B or 1, T).
        tables: amplitude, frequency, phase, decay.
        padding_idx: token id that is exactly 0 and sends no gradient, whatever its tables are.

    Returns:
        real and imag, (B, T, D) each, in the tables' dtype; angles are in at least float32, float64 for float64.
    """
    if torch.compiler.is_compiling():
        return plain_waves(token_ids_BT, position_BT, tables, padding_idx=padding_idx)
    return _apply(token_ids_BT, position_BT, tables, padding_idx, sparse=False)


def row_wise_waves(
    token_ids_BT: Tensor, position_BT: Tensor, tables: WaveTables, *, padding_idx: int | None = None
) -> tuple[Tensor, Tensor]:
    """Compute `waves` with sparse gradients for tables of V rows: one coalesced row per distinct token of the batch.

    Tables that all words share keep dense gradients. Compilers know no sparse ones: torch.compile breaks its graph.
    """
    # disabled here and not at import, which would load the compiler
    outside = cast("Callable[..., tuple[Tensor, Tensor]]", cast("Any", torch.compiler).disable(_apply))
    return outside(token_ids_BT, position_BT, tables, padding_idx, sparse=True)


def _apply(
    ids: Tensor, position: Tensor, tables: WaveTables, padding_idx: int | None, *, sparse: bool
) -> tuple[Tensor, Tensor]:
    if transformed():
        return plain_waves(ids, position, tables, padding_idx=padding_idx)
    return cast("Any", _Waves).apply(ids, position, tables.width, padding_idx, sparse, *tables.given())


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
        *given: Any,
    ) -> tuple[Tensor, Tensor]:
        tables = WaveTables(*given, width=width)
        kernel = _kernel(tables.amplitude)
        if kernel is not None:
            real, imag = kernel.forward(ids, position, given, tables.channels, padding_idx)
            keep = False
        else:
            real, imag, keep = _forward(ids, position, tables, padding_idx)
        ctx.width, ctx.padding_idx, ctx.sparse = width, padding_idx, sparse
        ctx.save_for_backward(ids, position, *((real, imag) if keep else (None, None)), *given)
        return real, imag

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        ids, position, real, imag, *given = ctx.saved_tensors
        tables, wanted, others = WaveTables(*given, width=ctx.width), ctx.needs_input_grad[5:], (None,) * 5
        if torch.is_grad_enabled():
            if ctx.sparse:
                raise RuntimeError("a second derivative needs dense gradients: build the embedding with sparse=False")
            return *others, *_differentiable(ids, position, tables, ctx.padding_idx, wanted, upstream)
        gradient = WaveGradient(ids, position, tables, ctx.padding_idx, ctx.sparse, wanted)
        kernel = _kernel(tables.amplitude)
        with no_autocast(ids.device):
            if kernel is not None:
                return *others, *gradient.by_kernel(kernel, upstream)
            return *others, *gradient.by_tiles(upstream, None if real is None else (real, imag))


def _kernel(table: Tensor) -> Any:
    """Return the module of Triton kernels on CUDA where Triton is installed; else None."""
    if table.device.type != "cuda" or find_spec("triton") is None:
        return None
    return import_module("wordorder.ops.waves.triton_kernels")


def _forward(ids: Tensor, position: Tensor, tables: WaveTables, padding_idx: int | None) -> tuple[Tensor, Tensor, bool]:
    """Return the outputs, and whether to keep them for the backward pass, which would else compute many sines."""
    shape = torch.Size((*ids.shape, tables.channels))
    angle = tables.angle(ids, position)
    modulus = tables.modulus(ids, position)
    if padding_idx is not None:
        modulus = modulus.masked_fill((ids == padding_idx)[..., None], 0)
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
    padding_idx: int | None,
    wanted: tuple[bool, ...],
    upstream: tuple[Tensor, ...],
) -> tuple[Tensor | None, ...]:
    inputs = [table for table, want in zip(tables.given(), wanted, strict=True) if want and table is not None]
    outputs = plain_waves(ids, position, tables, padding_idx=padding_idx)
    gradients = iter(torch.autograd.grad(outputs, inputs, upstream, create_graph=True, allow_unused=True))
    return tuple(next(gradients) if want else None for want in wanted)
