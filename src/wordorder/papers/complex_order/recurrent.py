"""A recurrent network that reads a text word by word."""

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from wordorder.encodings.places import check_choice, check_positive
from wordorder.networks.initialisation import Generators, draw_weights
from wordorder.ops import gather_tokens, valid_tokens
from wordorder.ops.tokens import pool_tokens, without_padding
from wordorder.papers.complex_order.network import TextBody, TextOutput

RecurrentPooling = Literal["last", "mean"]

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
    """Layers of LSTMs; a text's features are the last state (of both directions, if there are two).

    Hochreiter and Schmidhuber 1997; for text classification e.g. Liu et al. 2016, https://arxiv.org/abs/1605.05101.
    Each direction reads the tokens of its own text only, so padding on either side changes nothing.

    Args:
        width: channels of the embeddings, C.
        hidden: channels of one direction's state, H; positive.
        layers: positive.
        bidirectional: a second LSTM reads each text from its end; features and hidden states are then 2 H wide.
        pooling: "last" state of each direction, or the "mean" over tokens.
        dropout: between layers.

    Raises:
        ValueError: a size is out of range, or unknown pooling.
    """

    def __init__(
        self,
        width: int,
        *,
        hidden: int,
        layers: int = 1,
        bidirectional: bool = False,
        pooling: RecurrentPooling = "last",
        dropout: float = 0.0,
    ) -> None:
        check_recurrent(hidden, layers, pooling)
        directions = 2 if bidirectional else 1
        super().__init__(features=directions * hidden)
        self.hidden = hidden
        self.pooling: RecurrentPooling = pooling
        widths = [width, *([directions * hidden] * (layers - 1))]
        self.forwards = nn.ModuleList(LSTM(w, hidden, batch_first=True) for w in widths)
        self.backwards = nn.ModuleList(LSTM(w, hidden, batch_first=True) for w in widths if bidirectional)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Read texts, (B, T, C) -> features (B, H or 2 H)."""
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1])
        rows = Rows(x_BTC, valid_BT)
        x_BTC = rows.to_front(x_BTC)
        for index, forwards in enumerate(self.forwards):
            if index:
                x_BTC = self.dropout(x_BTC)
            states: list[Tensor] = [forwards(x_BTC)[0]]
            if len(self.backwards):
                states.append(rows.reverse(self.backwards[index](rows.reverse(x_BTC))[0]))
            x_BTC = torch.cat(states, dim=-1)
        features_BF = pool_states(self.pooling, x_BTC, rows.valid_BT, self.hidden)
        return TextOutput(features_BF, without_padding(rows.back(x_BTC), valid_BT))


def check_recurrent(hidden: int, layers: int, pooling: str) -> None:
    """Raise ValueError for the first size that is not positive, or an unknown pooling."""
    check_positive(hidden=hidden, layers=layers)
    check_choice("pooling", pooling, RecurrentPooling)


def pool_states(pooling: RecurrentPooling, x_BTC: Tensor, valid_BT: Tensor | None, hidden: int) -> Tensor:
    """Return the mean of the states, or the last one; a second direction, after the first H channels, ends at 0."""
    if pooling == "mean":
        return pool_tokens("mean", x_BTC, valid_BT)
    ends = [pool_tokens("last", x_BTC[..., :hidden], valid_BT)]
    if x_BTC.shape[-1] > hidden:
        ends.append(pool_tokens("first", x_BTC[..., hidden:], valid_BT))
    return torch.cat(ends, dim=-1)


class Rows:
    """Rows of texts whose tokens are moved to the front, in order, so that a recurrence meets no padding before them.

    Packing (``torch.nn.utils.rnn``) would do it too, but needs the lengths on the CPU and cannot be compiled.
    """

    def __init__(self, x_BTC: Tensor, valid_BT: Tensor | None) -> None:
        self.column_BT = self.valid_BT = None
        if valid_BT is not None:
            self.column_BT = (~valid_BT).int().argsort(dim=1, stable=True)
            self.valid_BT = valid_BT.gather(1, self.column_BT)
        self.step_T = torch.arange(x_BTC.shape[1], device=x_BTC.device)

    def to_front(self, x_BTC: Tensor) -> Tensor:
        """Move tokens to the front, padding after them."""
        return x_BTC if self.column_BT is None else gather_tokens(x_BTC, self.column_BT)

    def back(self, x_BTC: Tensor) -> Tensor:
        """Undo `to_front`."""
        return x_BTC if self.column_BT is None else gather_tokens(x_BTC, self.column_BT.argsort(dim=1))

    def reverse(self, x_BTC: Tensor) -> Tensor:
        """Turn each text around, from its last token to its first; its own inverse."""
        if self.valid_BT is None:
            return x_BTC.flip(1)
        length_B1 = self.valid_BT.sum(dim=1, keepdim=True)
        column_BT = torch.where(self.step_T < length_B1, length_B1 - 1 - self.step_T, self.step_T)
        return gather_tokens(x_BTC, column_BT)
