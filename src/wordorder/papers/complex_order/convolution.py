"""Convolutions over a text, and the largest response of each filter."""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import check_positive
from wordorder.networks.initialisation import Generators, draw_weights
from wordorder.ops import valid_tokens
from wordorder.ops.tokens import first_token, last_token, zero_if_empty
from wordorder.papers.complex_order.network import TextBody, TextOutput


class FilterBank(nn.Conv1d):
    """Filters of one size, drawn at the scale that keeps the responses as large as what they read (He et al. 2015)."""

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """Draw weights N(0, 2 / (size * C)), without ``std``: no norm follows that would mend the scale; biases 0."""
        del std
        fan_in = self.weight.shape[1] * self.weight.shape[2]
        draw_weights(self, generator_for, partial(nn.init.normal_, std=math.sqrt(2.0 / fan_in)))


class TextConvolution(TextBody):
    """Filters of several sizes slide over a text; each gives the largest response that it has anywhere.

    Kim 2014, "Convolutional neural networks for sentence classification", https://arxiv.org/abs/1408.5882, Sec. 2::

        c[s] = relu(b + sum_j W_j . x[s + j]),  j = 0 .. k - 1,  s = 0 .. n - k        (windows inside the text)
        features = max_s c[s]

    A text of fewer than k tokens has one window, filled up with zeros. Padding is in no window, so it changes nothing.

    Args:
        width: channels of the embeddings, C.
        filters: filters of each size; positive.
        kernel_sizes: tokens that a filter sees, k; positive, each once.

    Raises:
        ValueError: a size is out of range.
    """

    def __init__(self, width: int, *, filters: int = 128, kernel_sizes: Sequence[int] = (3, 4, 5)) -> None:
        check_filters(filters, kernel_sizes)
        super().__init__(features=filters * len(kernel_sizes))
        self.filters = nn.ModuleList(FilterBank(width, filters, size) for size in kernel_sizes)

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Map vectors (B, T, C), 0 where padding is, to features (B, sizes * filters)."""
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1])
        x_BCT = x_BTC.transpose(1, 2)
        responses: list[Tensor] = []
        for bank in self.filters:
            assert isinstance(bank, FilterBank)
            size = bank.kernel_size[0]
            response_BFT = F.relu(bank(F.pad(x_BCT, (0, size - 1))))
            responses.append(largest(response_BFT, windows(x_BTC, valid_BT, size)))
        return TextOutput(zero_if_empty(torch.cat(responses, dim=1), valid_BT), x_BTC)


def check_filters(filters: int, kernel_sizes: Sequence[int]) -> None:
    """Raise ValueError for no filters, or for sizes that are not positive or occur twice."""
    check_positive(filters=filters)
    if not kernel_sizes or min(kernel_sizes) <= 0 or len(set(kernel_sizes)) < len(kernel_sizes):
        raise ValueError(f"kernel_sizes must be positive, each once, got {list(kernel_sizes)}")


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


def largest(response_BFT: Tensor, allowed_BT: Tensor) -> Tensor:
    """Return the largest response of each filter over the allowed windows, (B, F)."""
    return response_BFT.masked_fill(~allowed_BT[:, None], -torch.inf).amax(dim=2)
