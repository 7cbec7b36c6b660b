"""Filters of complex numbers over a text."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import check_positive
from wordorder.networks.complex_valued.layers import ComplexBias, ComplexMap
from wordorder.networks.initialisation import Generators, draw_weights
from wordorder.ops.complex import choose_linear_form, stack
from wordorder.ops.execution import transformed
from wordorder.ops.precision import working_dtype


class ComplexConvolution(ComplexMap):
    """Filters ``A + iB`` over k neighbouring tokens: ``(A*a - B*b) + i (A*b + B*a) + bias``, windows inside the text.

    Trabelsi et al. 2018, https://arxiv.org/abs/1705.09792, Sec. 3.2; over words in Wang et al. 2020,
    https://arxiv.org/abs/1912.12333.

    Initial weights: A and B from N(0, 1 / (k C)) each, so that a modulus has He's variance 2 / (k C); bias 0. The
    reference code draws A and B from N(0, 1 / (k C)^2) and sets the bias to 0.1: the bias decides at first.

    Args:
        inputs: complex channels in, C.
        outputs: filters, F.
        size: tokens that a filter sees, k.
        shared: real filters, the same on both streams (B = 0).
        bias: "complex", "shared" (``(1 + i) b``, as in the reference code) or "none".

    Shape:
        (B, T, C) pairs or (B, T, 2C) stacked -> (B, T - k + 1, F) pairs or (B, T - k + 1, 2F) stacked.

    Raises:
        ValueError: a size is not positive, unknown bias; in `forward`, fewer than k tokens.
    """

    def __init__(
        self, inputs: int, outputs: int, *, size: int, shared: bool = False, bias: ComplexBias = "complex"
    ) -> None:
        check_positive(inputs=inputs, outputs=outputs, size=size)
        super().__init__(outputs, inputs, size, shared=shared, bias=bias)
        self.inputs, self.outputs, self.size = inputs, outputs, size
        self.draw_parameters(0.0, None)

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """Draw by the number of inputs, whatever ``std``: no norm follows that would mend another scale."""
        del std
        each = (self.size * self.inputs) ** -0.5 * (2**0.5 if self.weight_imag is None else 1)
        draw_weights(self, generator_for, partial(nn.init.normal_, std=each))

    def stacked(self, z: Tensor) -> Tensor:
        """Filter a text, (B, T, 2C) -> (B, T - k + 1, 2F)."""
        if z.shape[1] < self.size:
            raise ValueError(f"a filter sees {self.size} tokens, got a text of {z.shape[1]}; pad it")
        found_BT2F = self._responses(z.transpose(1, 2)).transpose(1, 2)
        bias = self.bias_pair()
        return found_BT2F if bias is None else found_BT2F + stack(bias)

    def _responses(self, z_B2CT: Tensor) -> Tensor:
        a_FCK, b_FCK = self.weight_real, self.weight_imag
        x_BCT, y_BCT = z_B2CT.chunk(2, dim=1)
        if b_FCK is None:
            return torch.cat((F.conv1d(x_BCT, a_FCK), F.conv1d(y_BCT, a_FCK)), dim=1)
        traced = torch.compiler.is_compiling() or transformed()
        rows = 64 if traced else z_B2CT.shape[0] * z_B2CT.shape[2]
        sizes = {"rows": rows, "inputs": self.inputs * self.size, "outputs": self.outputs}
        if choose_linear_form(z_B2CT.device.type, working_dtype(z_B2CT), traced=traced, **sizes) == "gauss":
            k1 = F.conv1d(x_BCT + y_BCT, a_FCK)
            k2, k3 = F.conv1d(x_BCT, b_FCK - a_FCK), F.conv1d(y_BCT, a_FCK + b_FCK)
            return torch.cat((k1 - k3, k1 + k2), dim=1)
        block = torch.cat((torch.cat((a_FCK, -b_FCK), dim=1), torch.cat((b_FCK, a_FCK), dim=1)))
        return F.conv1d(z_B2CT, block)
