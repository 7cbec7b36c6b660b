"""A recurrent network that reads a text word by word."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from wordorder.networks.initialisation import Generators
from wordorder.networks.text.network import TextBody, TextOutput
from wordorder.networks.text.pooling import pool_tokens, without_padding
from wordorder.networks.text.rows import Rows
from wordorder.ops import valid_tokens

RecurrentPooling = Literal["last", "mean"]


class LSTM(nn.LSTM):
    """One direction of one layer of torch's LSTM, with initial weights that do not depend on the network's ``std``.

    Hochreiter and Schmidhuber 1997; the forget gate's bias is 1 (Jozefowicz et al. 2015,
    https://proceedings.mlr.press/v37/jozefowicz15.html): a network that forgets at first learns slowly.
    """

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """Draw weights U(-1/sqrt(H), 1/sqrt(H)), as in torch; biases 0, that of the forget gate 1."""
        del std
        bound = 1 / math.sqrt(self.hidden_size)
        for name, parameter in self.named_parameters(recurse=False):
            if parameter.dim() < 2:
                nn.init.zeros_(parameter)
            else:
                generator = generator_for(name) if generator_for else None
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
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
        self.hidden, self.pooling = hidden, pooling
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
        if self.pooling == "mean":
            features_BF = pool_tokens("mean", x_BTC, rows.valid_BT)
        else:
            ends = [pool_tokens("last", x_BTC[..., : self.hidden], rows.valid_BT)]
            if len(self.backwards):
                ends.append(pool_tokens("first", x_BTC[..., self.hidden :], rows.valid_BT))
            features_BF = torch.cat(ends, dim=-1)
        return TextOutput(features_BF, without_padding(rows.back(x_BTC), valid_BT))


def check_recurrent(hidden: int, layers: int, pooling: str) -> None:
    """Raise ValueError for the first size that is not positive, or an unknown pooling."""
    for name, value in (("hidden", hidden), ("layers", layers)):
        if value <= 0:
            raise ValueError(f"{name} must be positive, got {value}")
    if pooling not in get_args(RecurrentPooling):
        raise ValueError(f"pooling must be one of {', '.join(get_args(RecurrentPooling))}, got {pooling!r}")
