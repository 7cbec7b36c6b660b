"""Text networks of complex numbers, which the paper of complex-order embeddings puts after the embeddings.

Vectors are stacked, ``[real | imag]`` in the last axis, from the embedding to the read-out, which makes them real.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import check_positive
from wordorder.networks.complex_valued import ComplexLinear, ComplexOptions, PhaseDropout
from wordorder.networks.complex_valued.layers import ComplexBias
from wordorder.networks.complex_valued.options import ReadOut, complex_encoding_options
from wordorder.ops import valid_tokens
from wordorder.ops.tokens import pool_tokens, zero_if_empty
from wordorder.papers.complex_order.complex_convolution import ComplexConvolution
from wordorder.papers.complex_order.complex_lstm import ComplexLSTM
from wordorder.papers.complex_order.convolution import check_filters, largest, windows
from wordorder.papers.complex_order.network import TextBody, TextEmbedding, TextOutput


class ComplexTextEmbedding(TextEmbedding):
    """`TextEmbedding` that gives both parts of complex vectors, (B, T, 2C), exactly 0 where padding is.

    Args:
        width: complex channels, C; positive. Further arguments as in `TextEmbedding`.
        encoding: "complex-order" or "complex-vanilla", alone or joined to others that act on embeddings.
        dropout: of complex numbers, which keep their phase.

    Raises:
        BadInput, ValueError: as in `TextEmbedding`, or no complex embedding.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int,
        encoding: str = "complex-order",
        encoding_options: Mapping[str, Any] | None = None,
        max_positions: int = 512,
        dropout: float = 0.0,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__(
            vocabulary,
            width=2 * width,
            encoding=encoding,
            encoding_options=complex_encoding_options(encoding, encoding_options),
            max_positions=max_positions,
            padding_idx=padding_idx,
        )
        self.dropout = PhaseDropout(dropout)


class ComplexBody(TextBody):
    """A body whose features come out of complex numbers by a read-out.

    The read-outs are those of `ComplexOptions`: "modulus" is the paper's, which has as many features as there are
    complex numbers; "none" leaves real and imaginary parts side by side, twice as many, as the paper's code does.

    Args:
        width: complex numbers that are read, F.
        read_out: "modulus", "linear", "real-part" or "none".
    """

    def __init__(self, width: int, read_out: ReadOut) -> None:
        super().__init__(features=2 * width if read_out == "none" else width)
        self.read_out = ComplexOptions(width=width, heads=1, read_out=read_out).read_out_layer()


class ComplexBagOfWords(ComplexBody):
    """The mean of a text's complex vectors, and a complex dense layer on it.

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, Eq. 10, with ``x + iy`` the mean and ``A + iB`` the layer::

        z = relu(A x - B y + b_r) + i relu(B x + A y + b_i),    features = |z|

    The paper's code has neither: it sums both parts and puts a real linear layer on them.

    Args:
        width: complex channels of the embeddings and of the layer, C.
        shared_weights: one real matrix for both parts (B = 0).
        bias: of the layer; see `ComplexLinear`.

    Raises:
        ValueError: unknown bias or read-out.
    """

    def __init__(
        self,
        width: int,
        *,
        shared_weights: bool = False,
        bias: ComplexBias = "complex",
        read_out: ReadOut = "modulus",
    ) -> None:
        super().__init__(width, read_out)
        self.dense = ComplexLinear(width, width, shared=shared_weights, bias=bias)

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Map vectors (B, T, 2C) to features (B, C), or (B, 2C) without read-out."""
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1])
        z_BC = F.relu(self.dense.stacked(pool_tokens("mean", x_BTC, valid_BT)))
        return TextOutput(zero_if_empty(self.read_out(z_BC), valid_BT), x_BTC)


class ComplexTextConvolution(ComplexBody):
    """`TextConvolution` with complex filters over complex vectors.

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, Eq. 11, with filters ``A + iB``; activation and maximum are
    taken of each part by itself, as in the paper's code::

        r[s] = relu(A * x - B * y + b_r),   q[s] = relu(A * y + B * x + b_i),    features = |max_s r[s] + i max_s q[s]|

    Args:
        width: complex channels of the embeddings, C.
        filters: complex filters of each size; ``kernel_sizes`` are those of `TextConvolution`.
        shared_weights: real filters, the same on both parts (B = 0).
        bias: see `ComplexConvolution`; the paper's code shares it between the parts.
        read_out: see `ComplexBody`; the paper's code has "none".

    Raises:
        ValueError: a size is out of range, or unknown bias or read-out.
    """

    def __init__(
        self,
        width: int,
        *,
        filters: int = 128,
        kernel_sizes: Sequence[int] = (3, 4, 5),
        shared_weights: bool = False,
        bias: ComplexBias = "complex",
        read_out: ReadOut = "modulus",
    ) -> None:
        check_filters(filters, kernel_sizes)
        super().__init__(filters * len(kernel_sizes), read_out)
        self.filters = nn.ModuleList(
            ComplexConvolution(width, filters, size=size, shared=shared_weights, bias=bias) for size in kernel_sizes
        )

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Map vectors (B, T, 2C), 0 for padding, to features (B, sizes * filters), twice as many without read-out."""
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1])
        responses: list[Tensor] = []
        for bank in self.filters:
            assert isinstance(bank, ComplexConvolution)
            z_BTF = F.relu(bank.stacked(F.pad(x_BTC, (0, 0, 0, bank.size - 1))))
            responses.append(largest(z_BTF.transpose(1, 2), windows(x_BTC, valid_BT, bank.size)))
        real, imag = zip(*(response.chunk(2, dim=1) for response in responses), strict=True)
        z_BF = torch.cat((*real, *imag), dim=1)
        return TextOutput(zero_if_empty(self.read_out(z_BF), valid_BT), x_BTC)


class ComplexTextRecurrent(ComplexBody):
    """Layers of complex LSTMs; the features are read out of the last complex state.

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, Eq. 12 and 13; the cell is `ComplexLSTM`'s::

        features = |h_n|

    Args:
        width: complex channels of the embeddings, C; further arguments as in `TextRecurrent`.
        hidden: complex channels of the state, H; positive.
        dropout: between layers, of complex numbers.
        shared_weights: real weights, the same on both parts.

    Raises:
        ValueError: a size is out of range, or unknown read-out.
    """

    def __init__(
        self,
        width: int,
        *,
        hidden: int,
        layers: int = 1,
        dropout: float = 0.0,
        shared_weights: bool = False,
        read_out: ReadOut = "modulus",
    ) -> None:
        check_positive(hidden=hidden, layers=layers)
        super().__init__(hidden, read_out)
        widths = (width, *([hidden] * (layers - 1)))
        self.layers = nn.ModuleList(ComplexLSTM(inputs, hidden, shared=shared_weights) for inputs in widths)
        self.dropout = PhaseDropout(dropout)

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Map vectors (B, T, 2C) to features (B, H), or (B, 2H) without read-out."""
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1])
        for index, layer in enumerate(self.layers):
            x_BTC = layer(self.dropout(x_BTC) if index else x_BTC, key_padding_mask=key_padding_mask)
        last_BC = pool_tokens("last", x_BTC, valid_BT)
        return TextOutput(zero_if_empty(self.read_out(last_BC), valid_BT), x_BTC)
