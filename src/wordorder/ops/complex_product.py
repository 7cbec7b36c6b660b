"""The complex matrix product in three real ones, forward and backward.

Gauss's trick in all three products that training needs (output, gradient of the input, gradient of the weight): nine
matrix products where the plain forms take twelve. Written out here because autograd would keep the sum of both streams
for the backward pass, and would fill and add a zero tensor for each half that is cut out of a stacked one. Where a
second derivative is wanted, the backward pass is eight plain products, which autograd can follow.
"""

# torch's autograd functions are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportIncompatibleMethodOverride=false

from typing import Any

import torch
from torch import Tensor


def product(
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


def input_gradient(g_MO: Tensor, h_MO: Tensor, a_OK: Tensor, b_OK: Tensor, real_MK: Tensor, imag_MK: Tensor) -> None:
    """Write ``(g + ih)(A - iB)``, the product with the conjugate, into ``real_MK`` and ``imag_MK``."""
    torch.mm(g_MO + h_MO, a_OK, out=real_MK)
    imag_MK.copy_(real_MK)
    _add_product(real_MK, h_MO, b_OK - a_OK)
    _add_product(imag_MK, g_MO, a_OK + b_OK, sign=-1)


def weight_gradient(g_MO: Tensor, h_MO: Tensor, x_MK: Tensor, y_MK: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``(g + ih)^T (x - iy)``, real and imaginary part."""
    real_OK = (g_MO + h_MO).T @ x_MK
    imag_OK = torch.addmm(real_OK, g_MO.T, x_MK + y_MK, alpha=-1)
    _add_product(real_OK, h_MO.T, x_MK - y_MK, sign=-1)
    return real_OK, imag_OK


def differentiable_gradients(
    g_MO: Tensor, h_MO: Tensor, x_MK: Tensor, y_MK: Tensor, a_OK: Tensor, b_OK: Tensor
) -> tuple[Tensor, ...]:
    """Return both parts of `input_gradient` and of `weight_gradient` by plain products, which autograd can follow."""
    inputs = g_MO @ a_OK + h_MO @ b_OK, h_MO @ a_OK - g_MO @ b_OK
    return *inputs, g_MO.T @ x_MK + h_MO.T @ y_MK, h_MO.T @ x_MK - g_MO.T @ y_MK


class GaussLinear(torch.autograd.Function):
    """A complex linear map of a pair."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, a_OK: Tensor, b_OK: Tensor, bias_2O: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Map a pair of tensors, (..., K) each -> (..., O) each."""
        ctx.save_for_backward(x, y, a_OK, b_OK)
        shape = (*x.shape[:-1], a_OK.shape[0])
        real, imag = x.new_empty(shape), x.new_empty(shape)
        product(_rows(x), _rows(y), a_OK, b_OK, bias_2O, _rows(real), _rows(imag))
        return real, imag

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of both parts of input and weight, and of the bias."""
        x, y, a_OK, b_OK = ctx.saved_tensors
        g_MO, h_MO = _rows(g), _rows(h)
        grad_bias = torch.cat((g_MO.sum(0), h_MO.sum(0))) if ctx.needs_input_grad[4] else None
        if torch.is_grad_enabled():
            real, imag, *grads = differentiable_gradients(g_MO, h_MO, _rows(x), _rows(y), a_OK, b_OK)
            return real.view(x.shape), imag.view(y.shape), *grads, grad_bias
        real = imag = grad_a = grad_b = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            real, imag = x.new_empty(x.shape), x.new_empty(x.shape)
            input_gradient(g_MO, h_MO, a_OK, b_OK, _rows(real), _rows(imag))
        if ctx.needs_input_grad[2] or ctx.needs_input_grad[3]:
            grad_a, grad_b = weight_gradient(g_MO, h_MO, _rows(x), _rows(y))
        return real, imag, grad_a, grad_b, grad_bias


class StackedGaussLinear(torch.autograd.Function):
    """A complex linear map of ``[real | imag]``; the halves are read and written where they lie."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, a_OK: Tensor, b_OK: Tensor, bias_2O: Tensor | None) -> Tensor:
        """Map a stacked tensor, (..., 2K) -> (..., 2O)."""
        ctx.save_for_backward(z, a_OK, b_OK)
        out = z.new_empty((*z.shape[:-1], 2 * a_OK.shape[0]))
        product(*_halves(z), a_OK, b_OK, bias_2O, *_halves(out))
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the input, of both parts of the weight, and of the bias."""
        z, a_OK, b_OK = ctx.saved_tensors
        grad_bias = _rows(g).sum(0) if ctx.needs_input_grad[3] else None
        if torch.is_grad_enabled():
            real, imag, *grads = differentiable_gradients(*_halves(g), *_halves(z), a_OK, b_OK)
            return torch.cat((real, imag), dim=-1).view(z.shape), *grads, grad_bias
        grad_z = grad_a = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_z = z.new_empty(z.shape)
            input_gradient(*_halves(g), a_OK, b_OK, *_halves(grad_z))
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            grad_a, grad_b = weight_gradient(*_halves(g), *_halves(z))
        return grad_z, grad_a, grad_b, grad_bias


def _add_product(total: Tensor, left: Tensor, right: Tensor, *, sign: int = 1) -> None:
    """Compute ``total += sign * left @ right`` in the form of addmm that torch.utils.flop_counter counts."""
    torch.addmm(total, left, right, alpha=sign, out=total)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _halves(z: Tensor) -> tuple[Tensor, Tensor]:
    real, imag = _rows(z).chunk(2, dim=-1)
    return real, imag
