"""An LSTM of complex numbers."""

import math

import torch
from torch import Tensor, nn

from wordorder.encodings.places import check_positive
from wordorder.networks.initialisation import Generators
from wordorder.ops import valid_tokens
from wordorder.ops.complex import Pair, split, stack
from wordorder.ops.tokens import without_padding
from wordorder.papers.complex_order.recurrent import Rows


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
        shared: real weights and one real bias, the same on both streams.

    Shape:
        (B, T, D) pairs or (B, T, 2D) stacked -> states, (B, T, n) pairs or (B, T, 2n) stacked, 0 where padding is.

    Raises:
        ValueError: a size is not positive.
    """

    def __init__(self, inputs: int, hidden: int, *, shared: bool = False) -> None:
        super().__init__()
        check_positive(inputs=inputs, hidden=hidden)
        self.inputs, self.hidden, self.shared = inputs, hidden, shared
        # In a list, since the seeds of first values are the parameters' names, "directions.0.bias" and so on.
        self.directions = nn.ModuleList([_Direction(inputs, hidden, shared)])

    def forward(self, z: Pair | Tensor, *, key_padding_mask: Tensor | None = None) -> Pair | Tensor:
        """Return the states of all tokens; ``key_padding_mask`` is bool (B, T), True = padding, on either side."""
        if not isinstance(z, Tensor):
            return split(self(stack(z), key_padding_mask=key_padding_mask))
        valid_BT = valid_tokens(key_padding_mask, z.shape[0], z.shape[1])
        rows = Rows(valid_BT)
        # Dropout draws in the order of memory, in which torch's LSTM has the steps first.
        states = self.directions[0](rows.to_front(z)).contiguous()
        return without_padding(rows.back(states), valid_BT)


class _Direction(nn.Module):
    """The weights of the LSTM."""

    def __init__(self, inputs: int, hidden: int, shared: bool) -> None:
        super().__init__()
        self.hidden, parts = hidden, 1 if shared else 2
        self.input_weight = nn.Parameter(torch.empty(parts, 4, hidden, inputs))
        self.hidden_weight = nn.Parameter(torch.empty(parts, 4, hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4, parts, hidden))
        self.draw_parameters(0.0, None)

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """Draw weights U(-1/sqrt(n), 1/sqrt(n)) in modulus as torch's LSTM, without ``std``; biases 0, forget gate's 1.

        A network that forgets at first learns slowly (Jozefowicz et al. 2015).
        """
        del std
        bound = 1 / math.sqrt(self.hidden * len(self.input_weight))
        for name in ("input_weight", "hidden_weight"):
            generator = generator_for(name) if generator_for else None
            nn.init.uniform_(getattr(self, name), -bound, bound, generator=generator)
        nn.init.zeros_(self.bias)
        if not getattr(self.bias, "_is_hf_initialized", False):
            with torch.no_grad():
                self.bias[1] = 1.0

    def forward(self, z_BTD: Tensor) -> Tensor:
        """Read texts, (B, T, 2D) -> states (B, T, 2n)."""
        if len(self.input_weight) == 1:  # both streams are texts of one real LSTM
            both = torch.cat(z_BTD.chunk(2, dim=-1))
            weights = self.input_weight.flatten(0, 2), self.hidden_weight.flatten(0, 2)
            return torch.cat(self._run(both, *weights).chunk(2), dim=-1)
        return self._run(z_BTD, _block(self.input_weight), _block(self.hidden_weight))

    def _run(self, z_BTD: Tensor, input_weight: Tensor, hidden_weight: Tensor) -> Tensor:
        start_1BH = z_BTD.new_zeros(1, z_BTD.shape[0], hidden_weight.shape[1])
        bias = self.bias.flatten()
        parameters = [input_weight, hidden_weight, bias, torch.zeros_like(bias)]
        # input, state, weights, has biases, layers, dropout, training, bidirectional, batch first
        lstm = torch.lstm
        return lstm(z_BTD, (start_1BH, start_1BH), parameters, True, 1, 0.0, self.training, False, True)[0]


def _block(weight_P4HD: Tensor) -> Tensor:
    """Return ``[[A, -B], [B, A]]`` of each of the four gates, (4 * 2n, 2D)."""
    a_4HD, b_4HD = weight_P4HD
    rows = torch.cat((a_4HD, -b_4HD), dim=-1), torch.cat((b_4HD, a_4HD), dim=-1)
    return torch.stack(rows, dim=1).flatten(0, 2)
