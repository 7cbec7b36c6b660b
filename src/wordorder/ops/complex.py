"""Arithmetic of complex numbers held as pairs of real tensors, ``(real, imag)``.

Complex tensors are not used: torch has no optimiser, norm or fused attention for them, and in 16 bits no arithmetic at
all. Where one tensor is handier, the pair lies side by side in its last axis, ``[real | imag]`` ("stacked" below).
"""

# torch's autograd functions are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportIncompatibleMethodOverride=false

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.ops.execution import transformed, working_dtype

Pair = tuple[Tensor, Tensor]
"""Real and imaginary part, of one shape and dtype."""

LinearForm = Literal["gauss", "block", "outer"]

SMALLEST_GAUSS = 64
"""Smallest number of rows, inputs and outputs for which three smaller products beat one larger one on a CPU."""
FEW_ROWS = 32
"""Largest number of rows for which writing out the block matrix costs more than it saves."""


def stack(z: Pair) -> Tensor:
    """Concatenate both parts in the last axis, ``[real | imag]``."""
    return torch.cat(z, dim=-1)


def split(z: Tensor) -> Pair:
    """Split the last axis into its halves, the real and the imaginary part, as views."""
    real, imag = z.chunk(2, dim=-1)
    return real, imag


def streams(z: Tensor) -> Tensor:
    """Give both parts of a stacked tensor an axis of their own: (..., 2C) -> (..., 2, C), as a view where possible."""
    return z.unflatten(-1, (2, -1))


def conjugate(z: Pair) -> Pair:
    """Return the complex conjugate, ``a - ib``."""
    return z[0], -z[1]


def multiply(z: Pair, w: Pair) -> Pair:
    """Multiply number by number: ``(a + ib)(c + id) = (ac - bd) + i(ad + bc)``."""
    (a, b), (c, d) = z, w
    return a * c - b * d, a * d + b * c


def modulus(z: Pair) -> Tensor:
    """Return ``|a + ib|``, with gradient 0 where the number is exactly 0.

    The modulus has no derivative there: that of sqrt(a^2 + b^2), and of torch.hypot, is NaN, which a padding row would
    spread over the whole network. 0 is the value that torch's complex ``abs`` takes. No square is formed, so nothing
    overflows or vanishes on the way.
    """
    zero = (z[0] == 0) & (z[1] == 0)
    return torch.hypot(z[0].masked_fill(zero, 1), z[1]).masked_fill(zero, 0)


def choose_linear_form(
    device: str, dtype: torch.dtype, *, rows: int, inputs: int, outputs: int, traced: bool = False
) -> LinearForm:
    """Choose how `stacked_linear` computes a product; a pure function of device, dtype and sizes.

    ===========  ======================================================================================
    form         taken for
    ===========  ======================================================================================
    `gauss`      CPU, float32 and float64, all three sizes at least 64: three products instead of four
    `outer`      few rows: four products in one matrix product, no matrix is written out
    `block`      everything else: one matrix product with [[A, B], [-B, A]]
    ===========  ======================================================================================

    Gauss's form subtracts sums that nearly cancel: in float32 the imaginary part's error doubles, in 16 bits the loss
    would show. On a GPU one large product keeps the tensor cores busy, and sums would be passes over memory.

    ``rows`` is the number of vectors that are mapped, ``inputs`` and ``outputs`` are complex channels. ``traced``: the
    call is traced or transformed; Gauss's form has its own backward, which tracers do not know.
    """
    wide = dtype in (torch.float32, torch.float64)
    if device == "cpu" and wide and not traced and min(rows, inputs, outputs) >= SMALLEST_GAUSS:
        return "gauss"
    return "outer" if rows <= FEW_ROWS and not traced else "block"


def stacked_linear(z: Tensor, weight: Pair, bias: Pair | None = None, *, form: LinearForm | None = None) -> Tensor:
    """Compute ``z W^T + b`` with ``W = A + iB`` of a stacked tensor: ``(x A^T - y B^T) + i (x B^T + y A^T)``.

    Trabelsi et al. 2018, "Deep complex networks", https://arxiv.org/abs/1705.09792, Sec. 3.2. Gauss's form::

        k1 = (x + y) A^T,  k2 = x (B - A)^T,  k3 = y (A + B)^T;   real = k1 - k3,  imag = k1 + k2

    Args:
        z: (..., 2K).
        weight: A and B, (O, K) each.
        bias: (O,) each.
        form: how; None lets `choose_linear_form` choose. All forms give the same numbers up to rounding.

    Returns:
        (..., 2O).
    """
    form = form or _form_of(z, weight[0])
    if form == "gauss":
        return GaussLinear.apply(*weight, None if bias is None else stack(bias), z)
    return _plain_linear(z, weight, bias, form)


def stacked_real_linear(z: Tensor, weight: Tensor, bias: Pair | Tensor | None = None) -> Tensor:
    """Compute ``z W^T + b`` with one real W for both streams: (..., 2K) -> (..., 2O) in one product without a copy.

    ``weight`` is (O, K); ``bias`` a pair of (O,), one (O,) that both streams get, ``(1 + i) b``, or None.
    """
    if isinstance(bias, tuple):
        return F.linear(streams(z), weight).flatten(-2) + stack(bias)
    return F.linear(streams(z), weight, bias).flatten(-2)


def _form_of(z: Tensor, weight: Tensor) -> LinearForm:
    traced = torch.compiler.is_compiling() or transformed()
    outputs, inputs = weight.shape
    rows = SMALLEST_GAUSS if traced else z.numel() // max(1, z.shape[-1])  # a traced number of rows may be a symbol
    return choose_linear_form(z.device.type, working_dtype(z), rows=rows, inputs=inputs, outputs=outputs, traced=traced)


def _plain_linear(z: Tensor, weight: Pair, bias: Pair | None, form: LinearForm) -> Tensor:
    offset = None if bias is None else stack(bias)
    a_OK, b_OK = weight
    if form == "block":
        upper, lower = torch.cat((a_OK, -b_OK), dim=1), torch.cat((b_OK, a_OK), dim=1)
        return F.linear(z, torch.cat((upper, lower)), offset)
    x_with, y_with = F.linear(streams(z), torch.cat(weight)).unbind(-2)
    (xa, xb), (ya, yb) = split(x_with), split(y_with)
    y = torch.cat((xa - yb, xb + ya), dim=-1)
    return y if offset is None else y + offset


def modulus_scores(q: Pair, k: Pair) -> Tensor:
    """Return ``|q k*|``, summed over channels before the modulus: (..., T, D) and (..., S, D) each -> (..., T, S).

    Three products (Gauss) instead of four; the gradient is 0 where the sum is exactly 0.
    """
    (a, b), (c, d) = q, k
    k1 = (a + b) @ c.transpose(-1, -2)
    real = k1 - b @ (c - d).transpose(-1, -2)
    imag = k1 - a @ (c + d).transpose(-1, -2)
    return modulus((real, imag))


def _product(
    x_MK: Tensor, y_MK: Tensor, a_OK: Tensor, b_OK: Tensor, bias_2O: Tensor | None, real_MO: Tensor, imag_MO: Tensor
) -> None:
    """Write ``(x + iy)(A + iB)^T + b`` into ``real_MO`` and ``imag_MO``, which may be halves of one tensor."""
    if bias_2O is None:
        torch.mm(x_MK + y_MK, a_OK.T, out=real_MO)
        imag_MO.copy_(real_MO)
    else:  # the bias comes in with writes that are needed anyway
        real_O, imag_O = bias_2O.chunk(2)
        torch.addmm(real_O, x_MK + y_MK, a_OK.T, out=real_MO)
        torch.add(real_MO, imag_O - real_O, out=imag_MO)
    _add_product(imag_MO, x_MK, (b_OK - a_OK).T)
    _add_product(real_MO, y_MK, (a_OK + b_OK).T, sign=-1)


def _input_gradient(g_MO: Tensor, h_MO: Tensor, a_OK: Tensor, b_OK: Tensor, real_MK: Tensor, imag_MK: Tensor) -> None:
    """Write ``(g + ih)(A - iB)``, the product with the conjugate, into ``real_MK`` and ``imag_MK``."""
    torch.mm(g_MO + h_MO, a_OK, out=real_MK)
    imag_MK.copy_(real_MK)
    _add_product(real_MK, h_MO, b_OK - a_OK)
    _add_product(imag_MK, g_MO, a_OK + b_OK, sign=-1)


def _weight_gradient(g_MO: Tensor, h_MO: Tensor, x_MK: Tensor, y_MK: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``(g + ih)^T (x - iy)``, real and imaginary part."""
    real_OK = (g_MO + h_MO).T @ x_MK
    imag_OK = torch.addmm(real_OK, g_MO.T, x_MK + y_MK, alpha=-1)
    _add_product(real_OK, h_MO.T, x_MK - y_MK, sign=-1)
    return real_OK, imag_OK


def _differentiable_gradients(
    g_MO: Tensor, h_MO: Tensor, x_MK: Tensor, y_MK: Tensor, a_OK: Tensor, b_OK: Tensor
) -> tuple[Tensor, ...]:
    """Return both parts of `_input_gradient` and of `_weight_gradient` by plain products, which autograd can follow."""
    inputs = g_MO @ a_OK + h_MO @ b_OK, h_MO @ a_OK - g_MO @ b_OK
    return *inputs, g_MO.T @ x_MK + h_MO.T @ y_MK, h_MO.T @ x_MK - g_MO.T @ y_MK


class GaussLinear(torch.autograd.Function):
    """A complex linear map of a stacked tensor in three real products, forward and backward.

    Gauss's trick in all three products that training needs (output, gradient of the input, gradient of the weight):
    nine matrix products where the plain forms take twelve. Written out here because autograd would keep the sum of both
    streams for the backward pass, and would fill and add a zero tensor for each half that is cut out of a stacked one;
    here halves are read and written where they lie. Where a second derivative is wanted, the backward pass is eight
    plain products, which autograd can follow.
    """

    @staticmethod
    def forward(ctx: Any, a_OK: Tensor, b_OK: Tensor, bias_2O: Tensor | None, z: Tensor) -> Tensor:
        ctx.save_for_backward(a_OK, b_OK, z)
        output = z.new_empty((*z.shape[:-1], 2 * a_OK.shape[0]))
        _product(*_both_parts(z), a_OK, b_OK, bias_2O, *_both_parts(output))
        return output

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        a_OK, b_OK, z = ctx.saved_tensors
        (g_MO, h_MO), both = _both_parts(upstream), _both_parts(z)
        grad_bias = _rows(upstream).sum(0) if ctx.needs_input_grad[2] else None
        if torch.is_grad_enabled():
            real, imag, grad_a, grad_b = _differentiable_gradients(g_MO, h_MO, *both, a_OK, b_OK)
            return grad_a, grad_b, grad_bias, torch.cat((real, imag), dim=-1).view(z.shape)
        grad_a = grad_b = grad_z = None
        if ctx.needs_input_grad[3]:
            grad_z = z.new_empty(z.shape)
            _input_gradient(g_MO, h_MO, a_OK, b_OK, *_both_parts(grad_z))
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            grad_a, grad_b = _weight_gradient(g_MO, h_MO, *both)
        return grad_a, grad_b, grad_bias, grad_z


def _add_product(total: Tensor, left: Tensor, right: Tensor, *, sign: int = 1) -> None:
    """Compute ``total += sign * left @ right`` in the form of addmm that torch.utils.flop_counter counts."""
    torch.addmm(total, left, right, alpha=sign, out=total)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _both_parts(z: Tensor) -> Pair:
    """Return real and imaginary part, (rows, channels) each, of a stacked tensor."""
    return split(_rows(z))
