"""A recurrent network whose recurrence turns states and never stretches them."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.networks.complex_valued.activation import modrelu_gain
from wordorder.networks.complex_valued.linear import check_sizes
from wordorder.networks.initialisation import Generators
from wordorder.ops import check_key_padding
from wordorder.ops.complex import Pair, multiply


class UnitaryRecurrent(nn.Module):
    """The unitary recurrent network of Arjovsky et al., without Fourier transforms, as Wang et al.'s code has it.

    Arjovsky et al. 2016, https://arxiv.org/abs/1511.06464, Eq. 6, for a real input x, W complex::

        h_t = modReLU(W x_t + D3 R2 D2 P R1 D1 h_{t-1})
        modReLU(z) = z relu(|z| + b) / (|z| + 1e-6),   D = diag(exp(i w)),   R z = z - 2 v (v* z) / |v|^2

    P is a fixed permutation. The paper has a Fourier transform before R1 and its inverse before D3; the code published
    with Wang et al. 2020 (https://arxiv.org/abs/1912.12333) leaves both out, calls the network an LSTM, and feeds the
    real and the imaginary parts of a text one after the other, as a text twice as long: ``torch.cat(pair, dim=1)``.

    Args:
        inputs: real channels in, D.
        hidden: complex channels of a state, n.

    Shape:
        (B, T, D) -> states (real, imag), (B, T, n) each. A padding token leaves the state as it was.

    Raises:
        ValueError: a size is not positive.
    """

    permutation: Tensor

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden)
        self.hidden = hidden
        self.input_weight = nn.Parameter(torch.empty(2 * hidden, inputs))
        self.angle = nn.Parameter(torch.empty(3, hidden))
        self.reflection = nn.Parameter(torch.empty(2, 2, hidden))  # which one, part, channel
        self.bias = nn.Parameter(torch.empty(hidden))
        self.register_buffer("permutation", torch.empty(hidden, dtype=torch.long))
        self.draw_parameters(0.0, None)

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """As the published code, whatever ``std``: W after Glorot, angles U(-pi, pi), reflections U(-1, 1), b 0.

        The permutation depends on the size alone, so that all arms and seeds have the same one.
        """
        del std
        if not getattr(self.permutation, "_is_hf_initialized", False):
            shuffled = torch.randperm(self.hidden, generator=torch.Generator().manual_seed(self.hidden), device="cpu")
            self.permutation.copy_(shuffled)
        glorot = math.sqrt(6 / (sum(self.input_weight.shape)))
        for name, bound in (("input_weight", glorot), ("angle", math.pi), ("reflection", 1.0)):
            generator = generator_for(name) if generator_for else None
            nn.init.uniform_(getattr(self, name), -bound, bound, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, x_BTD: Tensor, *, key_padding_mask: Tensor | None = None) -> Pair:
        """States of all tokens.

        Args:
            x_BTD: the texts, real.
            key_padding_mask: bool (B, T), True = padding; None = no padding.
        """
        check_key_padding("key_padding_mask", key_padding_mask, x_BTD.shape[0], x_BTD.shape[1])
        driven = F.linear(x_BTD, self.input_weight).chunk(2, dim=-1)  # all steps in one product
        turns = [(cosine, sine) for cosine, sine in zip(self.angle.cos(), self.angle.sin(), strict=True)]
        real = imag = x_BTD.new_zeros(x_BTD.shape[0], self.hidden)
        states: list[Pair] = []
        for t in range(x_BTD.shape[1]):
            turned = self._turn((real, imag), turns)
            before = driven[0][:, t] + turned[0], driven[1][:, t] + turned[1]
            gain = modrelu_gain(before, self.bias)
            moved = before[0] * gain, before[1] * gain
            if key_padding_mask is not None:
                stay_B1 = key_padding_mask[:, t, None]
                moved = torch.where(stay_B1, real, moved[0]), torch.where(stay_B1, imag, moved[1])
            real, imag = moved
            states.append(moved)
        return torch.stack([a for a, _ in states], dim=1), torch.stack([b for _, b in states], dim=1)

    def _turn(self, h: Pair, turns: list[Pair]) -> Pair:
        h = _reflect(multiply(h, turns[0]), self.reflection[0])
        h = multiply((h[0][:, self.permutation], h[1][:, self.permutation]), turns[1])
        return multiply(_reflect(h, self.reflection[1]), turns[2])


def _reflect(h: Pair, v_2N: Tensor) -> Pair:
    """``h - 2 v (v* h) / |v|^2``, of states (B, n)."""
    v, w = v_2N
    scale = 2 / v_2N.square().sum()
    along = (h[0] @ v + h[1] @ w)[:, None] * scale, (h[1] @ v - h[0] @ w)[:, None] * scale
    back = multiply(along, (v, w))
    return h[0] - back[0], h[1] - back[1]
