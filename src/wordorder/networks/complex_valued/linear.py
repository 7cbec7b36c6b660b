"""Linear maps of complex vectors, with complex or real weights."""

from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from wordorder.networks.complex_valued.layer import ComplexLayer, refuse_complex_tensors
from wordorder.networks.initialisation import Generators
from wordorder.ops.complex import Pair, linear, stacked_linear, stacked_real_linear

ComplexBias = Literal["complex", "shared", "none"]


class ComplexLinear(ComplexLayer):
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

    bias_real: nn.Parameter | None
    bias_imag: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, inputs: int, outputs: int, *, shared: bool = False, bias: ComplexBias = "complex") -> None:
        super().__init__()
        check_sizes(inputs=inputs, outputs=outputs)
        self.inputs, self.outputs, self.shared = inputs, outputs, shared
        self.weight_real = nn.Parameter(torch.empty(outputs, inputs))
        self.weight_imag = None if shared else nn.Parameter(torch.empty(outputs, inputs))
        add_bias(self, outputs, bias)
        self.draw_parameters((3 * inputs) ** -0.5, None)  # the variance of torch's own Linear

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """Draw weights whose modulus has this ``std`` (A and B: std / sqrt(2) each), so that outputs are as large as a
        real layer's; biases 0.
        """
        each = std if self.weight_imag is None else std / 2**0.5
        for name, parameter in self.named_parameters(recurse=False):
            if parameter.dim() < 2:
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, 0.0, each, generator=generator_for(name) if generator_for else None)

    def forward(self, z: Pair | Tensor) -> Pair | Tensor:
        """Map pairs, (..., K) -> (..., O), or stacked tensors, (..., 2K) -> (..., 2O)."""
        if isinstance(z, Tensor) or self.weight_imag is None:
            return super().forward(z)
        refuse_complex_tensors(z)
        self._check_channels(z[0], self.inputs)
        return linear(z, (self.weight_real, self.weight_imag), bias_pair(self))

    def stacked(self, z: Tensor) -> Tensor:
        """Map a stacked tensor, (..., 2K) -> (..., 2O)."""
        self._check_channels(z, 2 * self.inputs)
        if self.weight_imag is None:
            return stacked_real_linear(z, self.weight_real, self.bias if self.bias is not None else bias_pair(self))
        return stacked_linear(z, (self.weight_real, self.weight_imag), bias_pair(self))

    def _check_channels(self, z: Tensor, channels: int) -> None:
        if z.shape[-1] != channels:
            raise ValueError(
                f"z must have {self.inputs} complex channels, as a pair of (..., {self.inputs}) or one tensor "
                f"(..., {2 * self.inputs}), got {tuple(z.shape)}"
            )

    def extra_repr(self) -> str:
        """Return the sizes, for printing."""
        return f"inputs={self.inputs}, outputs={self.outputs}, shared={self.shared}"


def add_bias(module: nn.Module, outputs: int, kind: ComplexBias) -> None:
    """Give a module the parameters ``bias_real`` and ``bias_imag``, or ``bias``; the others are None.

    Raises:
        ValueError: unknown kind.
    """
    if kind not in get_args(ComplexBias):
        raise ValueError(f"bias must be one of {', '.join(get_args(ComplexBias))}, got {kind!r}")
    own = {"complex": ("bias_real", "bias_imag"), "shared": ("bias",), "none": ()}[kind]
    for name in ("bias_real", "bias_imag", "bias"):
        module.register_parameter(name, nn.Parameter(torch.zeros(outputs)) if name in own else None)


def bias_pair(module: nn.Module) -> Pair | None:
    """Return both parts of the bias that `add_bias` made; None where there is none."""
    shared, real, imag = (cast("Tensor | None", getattr(module, name)) for name in ("bias", "bias_real", "bias_imag"))
    if shared is not None:
        return shared, shared
    return None if real is None or imag is None else (real, imag)


def check_sizes(**sizes: int) -> None:
    """Raise ValueError for the first size that is not positive."""
    for name, value in sizes.items():
        if value <= 0:
            raise ValueError(f"{name} must be positive, got {value}")
