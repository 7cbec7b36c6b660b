"""Norms of complex vectors."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.networks.complex_valued.layer import ComplexLayer
from wordorder.networks.options import Norm
from wordorder.ops.complex import streams


class ComplexLayerNorm(ComplexLayer):
    """Layer norm of each stream by itself, as in the reference code of Wang et al. 2020 (translation, language model).

    ::

        a -> (a - mean a) / sqrt(var a + eps) * weight + bias,    b likewise

    The paper speaks of batch norm here; all of its published Transformers have this. A turn of all phases by one angle
    does not commute with it: use `ComplexRMSNorm` where it should.

    Args:
        width: complex channels, C.
        shared: both streams have the same weight and bias (as in the reference code); else each has its own.
    """

    def __init__(self, width: int, *, eps: float = 1e-5, shared: bool = True) -> None:
        super().__init__()
        self.width, self.eps, self.shared = width, eps, shared
        shape = (width,) if shared else (2, width)
        self.weight, self.bias = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))

    def draw_parameters(self, std: float, generator_for: object) -> None:
        """Set weight to 1 and bias to 0."""
        del std, generator_for
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def stacked(self, z: Tensor) -> Tensor:
        """Apply it to stacked numbers, (..., 2C) -> (..., 2C)."""
        if self.shared:
            return F.layer_norm(streams(z), (self.width,), self.weight, self.bias, self.eps).flatten(-2)
        normal = F.layer_norm(streams(z), (self.width,), eps=self.eps)
        return torch.addcmul(self.bias, normal, self.weight).flatten(-2)


class ComplexRMSNorm(ComplexLayer):
    """``z / sqrt(mean |z|^2 / 2 + eps) * weight`` with a real weight per channel: every phase stays what it was.

    The RMS norm (https://arxiv.org/abs/1910.07467) of both streams together, so that each has about unit variance.

    Args:
        width: complex channels, C.
        eps: added to the mean square.
    """

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.width, self.eps = width, eps
        self.weight = nn.Parameter(torch.ones(width))

    def draw_parameters(self, std: float, generator_for: object) -> None:
        """Set weight to 1."""
        del std, generator_for
        nn.init.ones_(self.weight)

    def stacked(self, z: Tensor) -> Tensor:
        """Apply it to stacked numbers, (..., 2C) -> (..., 2C)."""
        return F.rms_norm(z, (2 * self.width,), self.weight.repeat(2), self.eps)


def complex_norm(kind: Norm, width: int, eps: float, *, shared: bool) -> ComplexLayer:
    """Build a `ComplexLayerNorm` for "layer", a `ComplexRMSNorm` for "rms".

    Raises:
        ValueError: unknown kind.
    """
    if kind not in ("layer", "rms"):
        raise ValueError(f"norm must be one of layer, rms, got {kind!r}")
    return ComplexLayerNorm(width, eps=eps, shared=shared) if kind == "layer" else ComplexRMSNorm(width, eps=eps)
