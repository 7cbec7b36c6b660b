"""Recurrent text networks of complex numbers."""

import torch
from torch import Tensor, nn

from wordorder.networks.complex_valued import ComplexLSTM, PhaseDropout
from wordorder.networks.complex_valued.options import ReadOut
from wordorder.networks.text.complex import ComplexBody
from wordorder.networks.text.network import TextOutput
from wordorder.networks.text.pooling import pool_tokens, zero_if_empty
from wordorder.networks.text.recurrent import RecurrentPooling, check_recurrent
from wordorder.ops import valid_tokens
from wordorder.ops.complex import split


class ComplexTextRecurrent(ComplexBody):
    """Layers of complex LSTMs; the features are read out of the last complex state (of both directions).

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, Eq. 12 and 13; the cell is `ComplexLSTM`'s::

        features = |h_n|                       or  |[h_n ; h'_1]|, h' read from the end

    Args:
        width: complex channels of the embeddings, C.
        hidden: complex channels of one direction's state, H; positive.
        layers: positive.
        bidirectional: a second LSTM reads each text from its end.
        pooling: "last" state of each direction, or the "mean" over tokens.
        dropout: between layers, of complex numbers.
        shared_weights: real weights, the same on both parts.

    Raises:
        ValueError: a size is out of range, or unknown pooling or read-out.
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
        shared_weights: bool = False,
        read_out: ReadOut = "modulus",
    ) -> None:
        check_recurrent(hidden, layers, pooling)
        states = 2 * hidden if bidirectional else hidden
        super().__init__(states, read_out)
        self.hidden, self.pooling, self.bidirectional = hidden, pooling, bidirectional
        self.layers = nn.ModuleList(
            ComplexLSTM(inputs, hidden, bidirectional=bidirectional, shared=shared_weights)
            for inputs in (width, *([states] * (layers - 1)))
        )
        self.dropout = PhaseDropout(dropout)

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Map vectors (B, T, 2C) to features (B, H), (B, 2H) if bidirectional; twice as many without read-out."""
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1])
        for index, layer in enumerate(self.layers):
            x_BTC = layer(self.dropout(x_BTC) if index else x_BTC, key_padding_mask=key_padding_mask)
        if self.pooling == "mean":
            z_BH = pool_tokens("mean", x_BTC, valid_BT)
        else:
            parts: list[Tensor] = []
            for part_BTH in split(x_BTC):
                parts.append(pool_tokens("last", part_BTH[..., : self.hidden], valid_BT))
                if self.bidirectional:
                    parts.append(pool_tokens("first", part_BTH[..., self.hidden :], valid_BT))
            z_BH = torch.cat(parts, dim=-1)
        return TextOutput(zero_if_empty(self.read_out(z_BH), valid_BT), x_BTC)
