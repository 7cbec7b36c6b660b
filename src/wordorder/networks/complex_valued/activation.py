"""Activations and dropout of complex numbers, which act on each number by itself."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.networks.complex_valued.layer import ComplexLayer
from wordorder.ops.complex import Pair, modulus, split, streams


class ModReLU(ComplexLayer):
    """``z / |z| * relu(|z| + b)`` with a real b per channel: the size is cut, the phase stays.

    Arjovsky et al. 2016, "Unitary evolution recurrent neural networks", https://arxiv.org/abs/1511.06464, Eq. 8;
    computed as ``z relu(|z| + b) / (|z| + eps)``, 0 (with gradient 0 in the phase) where z is 0.

    Args:
        width: complex channels, C.
        eps: keeps the quotient finite; 1e-6 as in the paper's code.
    """

    def __init__(self, width: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.bias = nn.Parameter(torch.zeros(width))

    def stacked(self, z: Tensor) -> Tensor:
        """Apply it to stacked numbers, (..., 2C) -> (..., 2C)."""
        return (streams(z) * modrelu_gain(split(z), self.bias, self.eps).unsqueeze(-2)).flatten(-2)


def modrelu_gain(z: Pair, bias: Tensor, eps: float = 1e-6) -> Tensor:
    """Return modReLU's real factor, ``relu(|z| + bias) / (|z| + eps)``, of the shape of either part of z."""
    size = modulus(z)
    return F.relu(size + bias) / (size + eps)


class PhaseDropout(ComplexLayer):
    """Dropout of whole complex numbers: both parts of a channel are dropped together, so what stays keeps its phase.

    Args:
        probability: that a number is dropped in training; the others grow by 1 / (1 - probability).

    Raises:
        ValueError: the probability is not in [0, 1].
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0 <= probability <= 1:
            raise ValueError(f"dropout must lie in [0, 1], got {probability}")
        self.probability = probability

    def stacked(self, z: Tensor) -> Tensor:
        """Apply it to stacked numbers, (..., 2C) -> (..., 2C)."""
        if not self.training or self.probability == 0:
            return z
        both = streams(z)
        return (both * F.dropout(torch.ones_like(both[..., :1, :]), self.probability)).flatten(-2)

    def extra_repr(self) -> str:
        """Return the probability, for printing."""
        return f"probability={self.probability}"
