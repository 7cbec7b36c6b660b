"""A recurrent network, real or complex, that reads a text word by word."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from wordorder.encodings.places import check_positive
from wordorder.networks.complex_valued.layers import draw_weights
from wordorder.networks.initialisation import Generators
from wordorder.ops import gather_tokens, valid_tokens
from wordorder.ops.complex import modulus, split
from wordorder.ops.pooling import pool_tokens, without_padding, zero_if_empty
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


class ComplexLSTM(nn.Module):
    """One layer of an LSTM with complex weights; each part of a state is gated by its own part of the gate.

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, report a complex LSTM; the code published with it has a unitary
    network in its place (`UnitaryRecurrent`). This is Hochreiter and Schmidhuber's LSTM (1997) over complex products::

        i, f, g, o = W z_t + U h_{t-1} + b,           W, U, b complex
        c_t = sigma(f) . c_{t-1} + sigma(i) . tanh(g),   h_t = sigma(o) . tanh(c_t)     real and imaginary part apart

    A product of complex gates would not be bounded: |sigma(x) + i sigma(y)| reaches sqrt(2). So it is a real LSTM of
    twice the channels whose matrices are [[A, -B], [B, A]] gate by gate, and runs on torch's own kernels: one matrix
    product for the input of all steps, cuDNN on a GPU.

    Args:
        inputs: complex channels in, D.
        hidden: complex channels of a state, n.

    Shape:
        (B, T, 2D), ``[real | imag]`` -> states (B, T, 2n).
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input_weight = nn.Parameter(torch.empty(2, 4, hidden, inputs))
        self.hidden_weight = nn.Parameter(torch.empty(2, 4, hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4, 2, hidden))
        self.draw_parameters(0.0, None)

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """Draw weights U(-1/sqrt(n), 1/sqrt(n)) in modulus as torch's LSTM, without ``std``; biases 0, forget gate's 1.

        A network that forgets at first learns slowly (Jozefowicz et al. 2015).
        """
        del std
        bound = 1 / math.sqrt(self.hidden * 2)
        for name in ("input_weight", "hidden_weight"):
            generator = generator_for(name) if generator_for else None
            nn.init.uniform_(getattr(self, name), -bound, bound, generator=generator)
        nn.init.zeros_(self.bias)
        if not getattr(self.bias, "_is_hf_initialized", False):
            with torch.no_grad():
                self.bias[1] = 1.0

    def forward(self, z_BTD: Tensor) -> Tensor:
        start_1BH = z_BTD.new_zeros(1, z_BTD.shape[0], 2 * self.hidden)
        bias = self.bias.flatten()
        parameters = [_block(self.input_weight), _block(self.hidden_weight), bias, torch.zeros_like(bias)]
        # input, state, weights, has biases, layers, dropout, training, bidirectional, batch first
        lstm = torch.lstm
        return lstm(z_BTD, (start_1BH, start_1BH), parameters, True, 1, 0.0, self.training, False, True)[0]


def _block(weight_P4HD: Tensor) -> Tensor:
    a_4HD, b_4HD = weight_P4HD
    rows = torch.cat((a_4HD, -b_4HD), dim=-1), torch.cat((b_4HD, a_4HD), dim=-1)
    return torch.stack(rows, dim=1).flatten(0, 2)


class TextRecurrent(TextBody):
    """An LSTM; a text's features are the last state, of a `ComplexLSTM` its modulus.

    Hochreiter and Schmidhuber 1997; for text classification e.g. Liu et al. 2016, https://arxiv.org/abs/1605.05101;
    in complex numbers Wang et al. 2020, https://arxiv.org/abs/1912.12333, Eq. 12 and 13. Only tokens are read, so
    padding on either side changes nothing.

    Args:
        width: channels of the embeddings, C.
        hidden: channels of the state, H; positive.
        complex_valued: both are complex.

    Raises:
        ValueError: a size is out of range.
    """

    def __init__(self, width: int, *, hidden: int, complex_valued: bool = False) -> None:
        check_positive(hidden=hidden)
        super().__init__(features=hidden)
        self.complex_valued = complex_valued
        # In lists, since the seeds of first values are the parameters' names, "layers.0.directions.0.bias" and so on.
        if complex_valued:
            directions = nn.ModuleList([ComplexLSTM(width, hidden)])
            self.layers = nn.ModuleList([nn.ModuleDict({"directions": directions})])
        else:
            self.forwards = nn.ModuleList([LSTM(width, hidden, batch_first=True)])

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Read texts, (B, T, C or 2C) -> features (B, H)."""
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1], device=x_BTC.device)
        rows = Rows(valid_BT)
        lstm = self.get_submodule("layers.0.directions.0" if self.complex_valued else "forwards.0")
        states = lstm(rows.to_front(x_BTC))
        states_BTF = states if self.complex_valued else states[0]
        features_BF = pool_tokens("last", states_BTF, rows.valid_BT)
        if self.complex_valued:
            features_BF = zero_if_empty(modulus(split(features_BF)), valid_BT)
        return TextOutput(features_BF, without_padding(rows.back(states_BTF), valid_BT))


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
        return x_BTC if self.column_BT is None else gather_tokens(x_BTC, self.column_BT)

    def back(self, x_BTC: Tensor) -> Tensor:
        return x_BTC if self.column_BT is None else gather_tokens(x_BTC, self.column_BT.argsort(dim=1))
