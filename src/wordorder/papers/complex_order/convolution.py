"""Convolutions over a text, real or complex, and the largest response of each filter."""

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import check_positive
from wordorder.networks.complex_valued.layers import ComplexMap, draw_weights
from wordorder.networks.initialisation import Generators
from wordorder.ops import valid_tokens
from wordorder.ops.complex import choose_linear_form, modulus, split, stack
from wordorder.ops.execution import transformed, working_dtype
from wordorder.ops.pooling import first_token, last_token, zero_if_empty
from wordorder.papers.complex_order.network import TextBody, TextOutput

SIZES = (3, 4, 5)
"""Tokens that a filter sees, of each kind of filters (Kim 2014, Sec. 3.1)."""


class FilterBank(nn.Conv1d):
    """Filters of one size, drawn at the scale that keeps the responses as large as what they read (He et al. 2015)."""

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """Draw weights N(0, 2 / (size * C)), without ``std``: no norm follows that would mend the scale; biases 0."""
        del std
        fan_in = self.weight.shape[1] * self.weight.shape[2]
        draw_weights(self, generator_for, partial(nn.init.normal_, std=math.sqrt(2.0 / fan_in)))


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
        bias: "complex", or "shared" (``(1 + i) b``, as in the reference code).

    Shape:
        (B, T, C) pairs or (B, T, 2C) stacked -> (B, T - k + 1, F) pairs or (B, T - k + 1, 2F) stacked.
    """

    def __init__(self, inputs: int, outputs: int, size: int, *, bias: Literal["complex", "shared"] = "complex") -> None:
        super().__init__(outputs, inputs, size, shared=False, bias=bias)
        self.draw_parameters(0.0, None)

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        del std
        each = self.weight_real[0].numel() ** -0.5
        draw_weights(self, generator_for, partial(nn.init.normal_, std=each))

    def stacked(self, z: Tensor) -> Tensor:
        """Filter a text, (B, T, 2C) -> (B, T - k + 1, 2F)."""
        z_B2CT = z.transpose(1, 2)
        a_FCK, b_FCK = self.weight_real, self.weight_imag
        assert b_FCK is not None
        x_BCT, y_BCT = z_B2CT.chunk(2, dim=1)
        traced = torch.compiler.is_compiling() or transformed()
        rows = 64 if traced else z_B2CT.shape[0] * z_B2CT.shape[2]
        sizes = {"rows": rows, "inputs": a_FCK[0].numel(), "outputs": a_FCK.shape[0]}
        if choose_linear_form(z_B2CT.device.type, working_dtype(z_B2CT), traced=traced, **sizes) == "gauss":
            k1 = F.conv1d(x_BCT + y_BCT, a_FCK)
            k2, k3 = F.conv1d(x_BCT, b_FCK - a_FCK), F.conv1d(y_BCT, a_FCK + b_FCK)
            found_B2FT = torch.cat((k1 - k3, k1 + k2), dim=1)
        else:
            block = torch.cat((torch.cat((a_FCK, -b_FCK), dim=1), torch.cat((b_FCK, a_FCK), dim=1)))
            found_B2FT = F.conv1d(z_B2CT, block)
        bias = self.bias_pair()
        return (found_B2FT if bias is None else found_B2FT + stack(bias)[:, None]).transpose(1, 2)


class TextConvolution(TextBody):
    """Filters of 3, 4 and 5 tokens slide over a text; each gives the largest response that it has anywhere.

    Kim 2014, "Convolutional neural networks for sentence classification", https://arxiv.org/abs/1408.5882, Sec. 2::

        c[s] = relu(b + sum_j W_j . x[s + j]),  j = 0 .. k - 1,  s = 0 .. n - k        (windows inside the text)
        features = max_s c[s]

    A text of fewer than k tokens has one window, filled up with zeros. Padding is in no window, so it changes nothing.

    Complex filters ``A + iB`` read complex vectors (Wang et al. 2020, https://arxiv.org/abs/1912.12333, Eq. 11);
    activation and maximum are taken of each part by itself, as in the paper's code::

        r[s] = relu(A * x - B * y + b_r),   q[s] = relu(A * y + B * x + b_i),    features = |max_s r[s] + i max_s q[s]|

    Args:
        width: channels of the embeddings, C.
        filters: filters of each size; positive.
        complex_valued: embeddings and filters are complex.
        bias: of complex filters, see `ComplexConvolution`; the paper's code has "shared".
        read_out: of complex filters: "modulus", or "none": both parts are features, as in the paper's code.

    Raises:
        ValueError: no filters.
    """

    def __init__(
        self,
        width: int,
        *,
        filters: int = 128,
        complex_valued: bool = False,
        bias: Literal["complex", "shared"] = "complex",
        read_out: Literal["modulus", "none"] = "modulus",
    ) -> None:
        check_positive(filters=filters)
        super().__init__(features=filters * len(SIZES) * (2 if read_out == "none" else 1))
        kind = partial(ComplexConvolution, bias=bias) if complex_valued else FilterBank
        self.filters = nn.ModuleList(kind(width, filters, size) for size in SIZES)
        self.complex_valued, self.read_out = complex_valued, read_out

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Map vectors (B, T, C or 2C), 0 where padding is, to features (B, sizes * filters), or both parts of them."""
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1], device=x_BTC.device)
        x_BCT = x_BTC.transpose(1, 2)
        responses: list[Tensor] = []
        for bank, size in zip(self.filters, SIZES, strict=True):
            padded_BCT = F.pad(x_BCT, (0, size - 1))
            # complex filters read tokens by channels, torch's channels by tokens
            filtered_BFT = bank(padded_BCT.mT).mT if self.complex_valued else bank(padded_BCT)
            response_BFT = F.relu(filtered_BFT)
            outside_BT = ~windows(x_BTC, valid_BT, size)
            responses.append(response_BFT.masked_fill(outside_BT[:, None], -torch.inf).amax(dim=2))
        if not self.complex_valued:
            return TextOutput(zero_if_empty(torch.cat(responses, dim=1), valid_BT), x_BTC)
        real, imag = zip(*(response.chunk(2, dim=1) for response in responses), strict=True)
        z_BF = torch.cat((*real, *imag), dim=1)
        features_BF = z_BF if self.read_out == "none" else modulus(split(z_BF))
        return TextOutput(zero_if_empty(features_BF, valid_BT), x_BTC)


def windows(x_BTC: Tensor, valid_BT: Tensor | None, size: int) -> Tensor:
    """Return the columns at which a window of ``size`` tokens may begin: bool (B or 1, T), at least one in every row.

    Those windows that lie within the text, and the first one of a text that is shorter than the window.
    """
    start_T = torch.arange(x_BTC.shape[1], device=x_BTC.device)
    if valid_BT is None:
        return ((start_T + size <= x_BTC.shape[1]) | (start_T == 0))[None]
    first_B1, last_B1 = first_token(valid_BT)[:, None], last_token(valid_BT)[:, None]
    within_BT = (start_T >= first_B1) & (start_T + size - 1 <= last_B1)
    return within_BT | (start_T == first_B1)
