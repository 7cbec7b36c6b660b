"""The parts of a complex Transformer block, and the way from complex hidden states to real ones."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.networks.blocks import Activation, Blocks
from wordorder.networks.complex_valued.activation import ModReLU, PhaseDropout
from wordorder.networks.complex_valued.attention import (
    ComplexCrossAttention,
    ComplexSelfAttention,
    Scores,
    check_scores,
)
from wordorder.networks.complex_valued.layer import ComplexLayer
from wordorder.networks.complex_valued.linear import ComplexBias, ComplexLinear
from wordorder.networks.complex_valued.norm import complex_norm
from wordorder.ops.complex import modulus, split, streams

Nonlinearity = Literal["split", "modrelu"]
ReadOut = Literal["linear", "modulus", "real-part", "none"]


class ComplexFeedForward(ComplexLayer):
    """``W2 act(W1 z)`` with complex or shared real weights, applied to each token.

    "split" applies the activation to each stream by itself, as the paper's code does (relu); "swiglu" then gates each
    stream by itself. "modrelu" cuts the modulus and keeps the phase, whatever the activation's name.

    Args:
        width: complex channels, C.
        inner: complex channels between the maps.
        activation: "gelu", "relu", "silu" or "swiglu".
        nonlinearity: "split" or "modrelu".
        shared_weights: real maps, the same on both streams.
        bias: of the maps; see `ComplexLinear`.

    Raises:
        ValueError: unknown activation or nonlinearity.
    """

    def __init__(
        self,
        width: int,
        *,
        inner: int,
        activation: Activation = "gelu",
        nonlinearity: Nonlinearity = "split",
        shared_weights: bool = False,
        bias: ComplexBias = "complex",
    ) -> None:
        super().__init__()
        for name, value, known in (
            ("activation", activation, get_args(Activation)),
            ("nonlinearity", nonlinearity, get_args(Nonlinearity)),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        self.activation = activation
        self.cut = ModReLU(inner) if nonlinearity == "modrelu" else None
        gated = self.cut is None and activation == "swiglu"
        self.up = ComplexLinear(width, 2 * inner if gated else inner, shared=shared_weights, bias=bias)
        self.down = ComplexLinear(inner, width, shared=shared_weights, bias=bias)

    def stacked(self, z: Tensor) -> Tensor:
        """(..., 2C) -> (..., 2C)."""
        inner = self.up(z)
        if self.cut is not None:
            return self.down(self.cut(inner))
        if self.activation == "swiglu":
            gate, value = split(streams(inner))
            return self.down((F.silu(gate) * value).flatten(-2))
        acts = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}
        return self.down(acts[self.activation](inner))


class Modulus(nn.Module):
    """``|z|`` of each channel, (..., 2C) -> (..., C); see `ops.complex.modulus`."""

    def forward(self, z: Tensor) -> Tensor:
        """(..., 2C) -> (..., C), not negative."""
        return modulus(split(z))


class RealPart(nn.Module):
    """The real part, (..., 2C) -> (..., C)."""

    def forward(self, z: Tensor) -> Tensor:
        """(..., 2C) -> (..., C)."""
        return split(z)[0]


@dataclass(frozen=True, kw_only=True)
class ComplexBlocks(Blocks):
    """`Blocks` of complex numbers: hidden states are stacked, (B, T, 2C).

    Args:
        shared_weights: every map has one real matrix for both streams (the paper's "shared W") instead of A + iB.
        scores: of attention, "real-part" (fused kernels) or "modulus"; see `ComplexHeads`.
        bias: of linear maps: "complex", "shared" (``(1 + i) b``, as in the paper's code) or "none".
        shared_norms: both streams have the same norm weights, as in the paper's code.
        nonlinearity: "split" (the activation on each stream) or "modrelu".
        to_real: how heads read the last hidden states. "linear" (a learned real map of both parts) is the default:
            "modulus", the paper's, cannot be negative, so that a tied output layer could only raise the logits of words
            with positive embeddings; "real-part" leaves half of the last layer unused. "none" keeps them stacked, for a
            decoder that asks.

    Raises:
        ValueError: as in `Blocks`, or an unknown style.
    """

    shared_weights: bool = False
    scores: Scores = "real-part"
    bias: ComplexBias = "complex"
    shared_norms: bool = True
    nonlinearity: Nonlinearity = "split"
    to_real: ReadOut = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scores(self.scores)
        if self.to_real not in get_args(ReadOut):
            raise ValueError(f"read_out must be one of {', '.join(get_args(ReadOut))}, got {self.to_real!r}")

    @property
    def channels(self) -> int:
        """2C."""
        return 2 * self.width

    @property
    def backend(self) -> str | None:
        """The modulus is in no fused kernel, so it reads the reference's plan."""
        return "reference" if self.scores == "modulus" else None

    def attention(self) -> nn.Module:
        """A `ComplexSelfAttention`."""
        return ComplexSelfAttention(self.width, **self._heads(), **self._weights(), scores=self.scores)

    def cross_attention(self) -> nn.Module:
        """A `ComplexCrossAttention`."""
        return ComplexCrossAttention(self.width, **self._heads(), **self._weights(), scores=self.scores)

    def feedforward_network(self) -> nn.Module:
        """A `ComplexFeedForward`."""
        return ComplexFeedForward(
            self.width,
            inner=self.inner,
            activation=self.activation,
            nonlinearity=self.nonlinearity,
            **self._weights(),
        )

    def norm_layer(self) -> nn.Module:
        """A `ComplexLayerNorm` or a `ComplexRMSNorm`."""
        return complex_norm(self.norm, self.width, self.norm_eps, shared=self.shared_norms)

    def dropout_layer(self) -> nn.Module:
        """A `PhaseDropout`."""
        return PhaseDropout(self.dropout)

    def read_out(self) -> nn.Module:
        """From (B, T, 2C) to the (B, T, C) that heads read."""
        if self.to_real == "linear":
            return nn.Linear(2 * self.width, self.width)
        return {"modulus": Modulus, "real-part": RealPart, "none": nn.Identity}[self.to_real]()

    def _weights(self) -> dict[str, Any]:
        return {"shared_weights": self.shared_weights, "bias": self.bias}
