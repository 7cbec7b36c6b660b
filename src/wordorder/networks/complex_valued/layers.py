"""Layers of complex numbers: linear maps, norms, activations and dropout."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import check_choice, check_positive
from wordorder.networks.initialisation import Generators, NormParameters
from wordorder.ops.complex import (
    Pair,
    modulus,
    split,
    stack,
    stacked_linear,
    stacked_real_linear,
    streams,
)

ComplexBias = Literal["complex", "shared", "none"]


def draw_weights(module: nn.Module, generator_for: Generators | None, draw: Callable[..., object]) -> None:
    """Draw a module's own matrices by ``draw``, a function of `nn.init`, and set its vectors to 0."""
    for name, parameter in module.named_parameters(recurse=False):
        if parameter.dim() < 2:
            nn.init.zeros_(parameter)
        else:
            draw(parameter, generator=generator_for(name) if generator_for else None)


class ComplexLayer(nn.Module, ABC):
    """A map of complex numbers, given as ``(real, imag)`` or side by side in the last axis, ``[real | imag]``."""

    def forward(self, z: Pair | Tensor) -> Pair | Tensor:
        """Map a pair to a pair, (..., C) each, or a stacked tensor to a stacked one, (..., 2C).

        Raises:
            ValueError: a complex tensor in their place.
        """
        for part in (z,) if isinstance(z, Tensor) else z:
            if part.is_complex():
                raise ValueError(
                    "z must be (z.real, z.imag) or both side by side in the last axis of one real tensor, got "
                    f"{part.dtype} {tuple(part.shape)}"
                )
        return self.stacked(z) if isinstance(z, Tensor) else split(self.stacked(stack(z)))

    @abstractmethod
    def stacked(self, z: Tensor) -> Tensor:
        """Map a stacked tensor, (..., 2C)."""


class ComplexMap(ComplexLayer):
    """The weights ``A + iB`` of a linear map, and its bias; B = 0 where they are shared."""

    bias_real: nn.Parameter | None
    bias_imag: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, *shape: int, shared: bool, bias: ComplexBias) -> None:
        super().__init__()
        self.weight_real = nn.Parameter(torch.empty(shape))
        self.weight_imag = None if shared else nn.Parameter(torch.empty(shape))
        check_choice("bias", bias, ComplexBias)
        own = {"complex": ("bias_real", "bias_imag"), "shared": ("bias",), "none": ()}[bias]
        for name in ("bias_real", "bias_imag", "bias"):
            self.register_parameter(name, nn.Parameter(torch.zeros(shape[0])) if name in own else None)

    def bias_pair(self) -> Pair | None:
        """Return both parts of the bias; None where there is none."""
        if self.bias is not None:
            return self.bias, self.bias
        return None if self.bias_real is None or self.bias_imag is None else (self.bias_real, self.bias_imag)


class ComplexLinear(ComplexMap):
    """``z W^T + b`` with ``W = A + iB``.

    Trabelsi et al. 2018, https://arxiv.org/abs/1705.09792, Sec. 3.2; Wang et al. 2020,
    https://arxiv.org/abs/1912.12333, Eq. 10. Computed in three real products where that pays (`ops.complex`).

    With ``shared`` the same real W acts on both streams (B = 0), which halves the parameters: what the paper's ablation
    calls sharing W, and its code calls "A = B".

    Args:
        inputs: complex channels in, K.
        outputs: complex channels out, O.
        shared: B = 0.
        bias: "complex" (own numbers for both parts), "shared" (``(1 + i) b``, as in the paper's code) or "none".

    Shape:
        (..., K) pairs or (..., 2K) stacked -> (..., O) pairs or (..., 2O) stacked.

    Raises:
        ValueError: a size is not positive, or unknown bias; from forward: another number of channels.
    """

    def __init__(self, inputs: int, outputs: int, *, shared: bool = False, bias: ComplexBias = "complex") -> None:
        check_positive(inputs=inputs, outputs=outputs)
        super().__init__(outputs, inputs, shared=shared, bias=bias)
        self.inputs, self.outputs, self.shared = inputs, outputs, shared
        self.draw_parameters((3 * inputs) ** -0.5, None)  # the variance of torch's own Linear

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """Draw weights whose modulus has this ``std`` (A and B: std / sqrt(2) each), so that outputs are as large as a
        real layer's; biases 0.
        """
        each = std if self.weight_imag is None else std / 2**0.5
        draw_weights(self, generator_for, partial(nn.init.normal_, std=each))

    def stacked(self, z: Tensor) -> Tensor:
        """Map a stacked tensor, (..., 2K) -> (..., 2O)."""
        if z.shape[-1] != 2 * self.inputs:
            raise ValueError(
                f"z must have {self.inputs} complex channels, as a pair of (..., {self.inputs}) or one tensor "
                f"(..., {2 * self.inputs}), got {tuple(z.shape)} side by side"
            )
        if self.weight_imag is None:
            return stacked_real_linear(z, self.weight_real, self.bias if self.bias is not None else self.bias_pair())
        return stacked_linear(z, (self.weight_real, self.weight_imag), self.bias_pair())

    def extra_repr(self) -> str:
        return f"inputs={self.inputs}, outputs={self.outputs}, shared={self.shared}"


class ComplexLayerNorm(NormParameters, ComplexLayer):
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

    def stacked(self, z: Tensor) -> Tensor:
        if self.shared:
            return F.layer_norm(streams(z), (self.width,), self.weight, self.bias, self.eps).flatten(-2)
        normal = F.layer_norm(streams(z), (self.width,), eps=self.eps)
        return torch.addcmul(self.bias, normal, self.weight).flatten(-2)


class ComplexRMSNorm(NormParameters, ComplexLayer):
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

    def stacked(self, z: Tensor) -> Tensor:
        return F.rms_norm(z, (2 * self.width,), self.weight.repeat(2), self.eps)


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
        if not self.training or self.probability == 0:
            return z
        both = streams(z)
        return (both * F.dropout(torch.ones_like(both[..., :1, :]), self.probability)).flatten(-2)

    def extra_repr(self) -> str:
        return f"probability={self.probability}"
