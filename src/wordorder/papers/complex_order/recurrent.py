"""A recurrent network that reads a text word by word."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from wordorder.encodings.places import check_positive
from wordorder.networks.initialisation import Generators, draw_weights
from wordorder.ops import gather_tokens, valid_tokens
from wordorder.ops.tokens import pool_tokens, without_padding
from wordorder.papers.complex_order.network import TextBody, TextOutput

_HAS_16_BITS = bool(getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)())
"""Whether this CPU has an LSTM in 16 bits; torch says so nowhere in public."""


class LSTM(nn.LSTM):
    """One direction of one layer of torch's LSTM, with initial weights that do not depend on the network's ``std``.

    Hochreiter and Schmidhuber 1997; the forget gate's bias is 1 (Jozefowicz et al. 2015,
    https://proceedings.mlr.press/v37/jozefowicz15.html): a network that forgets at first learns slowly.
    """

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  no packed sequences
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run the LSTM, in float32 under the autocast of a CPU that has none in 16 bits (torch would raise there)."""
        if _HAS_16_BITS or input.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
            return super().forward(input, hx)
        with torch.autocast("cpu", enabled=False):
            return super().forward(input.float(), None if hx is None else (hx[0].float(), hx[1].float()))

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """Draw weights U(-1/sqrt(H), 1/sqrt(H)), as in torch; biases 0, that of the forget gate 1."""
        del std
        bound = 1 / math.sqrt(self.hidden_size)
        draw_weights(self, generator_for, partial(nn.init.uniform_, a=-bound, b=bound))
        bias = self.get_parameter("bias_ih_l0")
        # a slice does not carry transformers' mark of a loaded weight
        if not getattr(bias, "_is_hf_initialized", False):
            nn.init.ones_(bias.detach()[self.hidden_size : 2 * self.hidden_size])


class TextRecurrent(TextBody):
    """Layers of LSTMs; a text's features are the last state.

    Hochreiter and Schmidhuber 1997; for text classification e.g. Liu et al. 2016, https://arxiv.org/abs/1605.05101.
    Only tokens are read, so padding on either side changes nothing.

    Args:
        width: channels of the embeddings, C.
        hidden: channels of the state, H; positive.
        layers: positive.
        dropout: between layers.

    Raises:
        ValueError: a size is out of range.
    """

    def __init__(self, width: int, *, hidden: int, layers: int = 1, dropout: float = 0.0) -> None:
        check_positive(hidden=hidden, layers=layers)
        super().__init__(features=hidden)
        widths = [width, *([hidden] * (layers - 1))]
        self.forwards = nn.ModuleList(LSTM(w, hidden, batch_first=True) for w in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Read texts, (B, T, C) -> features (B, H)."""
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1])
        rows = Rows(valid_BT)
        x_BTC = rows.to_front(x_BTC)
        for index, lstm in enumerate(self.forwards):
            # Dropout draws in the order of memory, in which torch's LSTM has the steps first.
            x_BTC = lstm(self.dropout(x_BTC) if index else x_BTC)[0].contiguous()
        features_BF = pool_tokens("last", x_BTC, rows.valid_BT)
        return TextOutput(features_BF, without_padding(rows.back(x_BTC), valid_BT))


class Rows:
    """Rows of texts whose tokens are moved to the front, in order, so that a recurrence meets no padding before them.

    Packing (``torch.nn.utils.rnn``) would do it too, but needs the lengths on the CPU and cannot be compiled.
    """

    def __init__(self, valid_BT: Tensor | None) -> None:
        self.column_BT = self.valid_BT = None
        if valid_BT is not None:
            self.column_BT = (~valid_BT).int().argsort(dim=1, stable=True)
            self.valid_BT = valid_BT.gather(1, self.column_BT)

    def to_front(self, x_BTC: Tensor) -> Tensor:
        """Move tokens to the front, padding after them."""
        return x_BTC if self.column_BT is None else gather_tokens(x_BTC, self.column_BT)

    def back(self, x_BTC: Tensor) -> Tensor:
        """Undo `to_front`."""
        return x_BTC if self.column_BT is None else gather_tokens(x_BTC, self.column_BT.argsort(dim=1))
