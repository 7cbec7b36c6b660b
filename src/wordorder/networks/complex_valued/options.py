"""Sizes and style of a complex Transformer, the parts of its layers, and the way to real hidden states."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.attention import Backend
from wordorder.encodings import names_of, split_options
from wordorder.encodings.places import check_choice
from wordorder.errors import BadInput
from wordorder.networks.complex_valued.attention import (
    ComplexCrossAttention,
    ComplexSelfAttention,
    ModulusScores,
    Scores,
)
from wordorder.networks.complex_valued.layers import (
    ComplexBias,
    ComplexLayer,
    ComplexLayerNorm,
    ComplexLinear,
    ComplexRMSNorm,
    ModReLU,
    PhaseDropout,
)
from wordorder.networks.options import ACTIVATIONS, Activation, Norm, TransformerKeywords, TransformerOptions
from wordorder.ops.complex import modulus, split, streams

Nonlinearity = Literal["split", "modrelu"]
ReadOut = Literal["linear", "modulus", "real-part", "none"]


COMPLEX_EMBEDDINGS = ("complex-order", "complex-vanilla")
"""Names of the catalogue that give complex vectors."""

COMPLEX_OPTIONS = ("shared_weights", "scores", "bias", "shared_norms", "nonlinearity", "read_out")
"""Keywords that `ComplexEncoder` and `ComplexDecoder` take beyond their real counterparts."""


def complex_encoding_options(encoding: str, options: Mapping[str, object] | None) -> dict[str, dict[str, object]]:
    """Return options by part, with the complex embedding told to give both parts.

    Raises:
        BadInput: unknown name or option, or no complex embedding among the parts, or another ``as_real``.
    """
    names, by_part = names_of(encoding), split_options(encoding, options)
    complex_part = next((name for name in names if name in COMPLEX_EMBEDDINGS), None)
    if complex_part is None:
        raise BadInput(
            f"a complex network needs complex embeddings, got encoding {encoding!r}; add one of "
            f"{', '.join(COMPLEX_EMBEDDINGS)}, such as 'complex-order+{names[-1]}'"
        )
    given = by_part[complex_part].get("as_real", "pair")
    if given != "pair":
        raise BadInput(f"encoding_options: as_real={given!r} is for real networks; leave it out in a complex one")
    return {**by_part, complex_part: {**by_part[complex_part], "as_real": "pair"}}


class ComplexFeedForward(ComplexLayer):
    """``W2 act(W1 z)`` with complex or shared real weights, applied to each token.

    "split" applies the activation to each stream by itself, as the paper's code does (relu); "swiglu" then gates each
    stream by itself. "modrelu" cuts the modulus and keeps the phase, whatever the activation's name.

    Args:
        width: complex channels, C.
        inner: complex channels between the maps.
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
        check_choice("activation", activation, Activation)
        check_choice("nonlinearity", nonlinearity, Nonlinearity)
        self.activation = activation
        self.cut = ModReLU(inner) if nonlinearity == "modrelu" else None
        gated = self.cut is None and activation == "swiglu"
        self.up = ComplexLinear(width, 2 * inner if gated else inner, shared=shared_weights, bias=bias)
        self.down = ComplexLinear(inner, width, shared=shared_weights, bias=bias)

    def stacked(self, z: Tensor) -> Tensor:
        inner = self.up(z)
        if self.cut is not None:
            return self.down(self.cut(inner))
        if self.activation == "swiglu":
            gate, value = split(streams(inner))
            return self.down((F.silu(gate) * value).flatten(-2))
        return self.down(ACTIVATIONS[self.activation](inner))


class Modulus(nn.Module):
    """``|z|`` of each channel, (..., 2C) -> (..., C); see `ops.complex.modulus`."""

    def forward(self, z: Tensor) -> Tensor:
        return modulus(split(z))


class RealPart(nn.Module):
    """The real part of each channel, (..., 2C) -> (..., C)."""

    def forward(self, z: Tensor) -> Tensor:
        return split(z)[0]


class ComplexKeywords(TransformerKeywords, total=False):
    """Keywords of `ComplexEncoder` and `ComplexDecoder`: the fields of `ComplexOptions`."""

    shared_weights: bool
    scores: Scores
    bias: ComplexBias
    shared_norms: bool
    nonlinearity: Nonlinearity
    read_out: ReadOut


@dataclass(frozen=True, kw_only=True)
class ComplexOptions(TransformerOptions):
    """Sizes and style of a Transformer of complex numbers: hidden states are stacked, (B, T, 2C).

    Args:
        shared_weights: every map has one real matrix for both streams (the paper's "shared W") instead of A + iB.
        scores: of attention, "real-part" (fused kernels) or "modulus" of ``q k*``; see `ComplexHeads`.
        bias: of linear maps: "complex", "shared" (``(1 + i) b``, as in the paper's code) or "none".
        shared_norms: both streams have the same norm weights, as in the paper's code.
        nonlinearity: "split" (the activation on each stream) or "modrelu".
        read_out: how heads read the last hidden states. "linear" (a learned real map of both parts) is the default:
            "modulus", the paper's, cannot be negative, so that a tied output layer could only raise the logits of words
            with positive embeddings; "real-part" leaves half of the last layer unused. "none" keeps them stacked, for a
            decoder that reads them by cross-attention.

    Raises:
        BadInput: unknown encoding or option, or no complex embedding.
        ValueError: as in `TransformerOptions`, or an unknown style.
    """

    encoding: str = "complex-order"
    shared_weights: bool = False
    scores: Scores = "real-part"
    bias: ComplexBias = "complex"
    shared_norms: bool = True
    nonlinearity: Nonlinearity = "split"
    read_out: ReadOut = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("scores", self.scores, Scores)
        check_choice("read_out", self.read_out, ReadOut)
        if self.qk_norm != "none" or not self.use_bias:
            raise ValueError(
                f"complex layers have no qk_norm, and biases by `bias`: leave qk_norm={self.qk_norm!r} and"
                f" use_bias={self.use_bias} out, and take block='classic'"
            )
        options = complex_encoding_options(self.encoding, self.encoding_options)
        object.__setattr__(self, "encoding_options", options)  # frozen, and not yet handed out

    @property
    def channels(self) -> int:
        """2C."""
        return 2 * self.width

    @property
    def backend(self) -> Backend | None:
        return ModulusScores() if self.scores == "modulus" else None

    def attention(self) -> ComplexSelfAttention:
        return ComplexSelfAttention(self.width, **self._heads(), **self._weights())

    def cross_attention(self) -> ComplexCrossAttention:
        return ComplexCrossAttention(self.width, **self._heads(), **self._weights())

    def feedforward_network(self) -> nn.Module:
        assert self.activation is not None
        return ComplexFeedForward(
            self.width, inner=self.inner, activation=self.activation, nonlinearity=self.nonlinearity, **self._weights()
        )

    def norm_layer(self) -> nn.Module:
        check_choice("norm", str(self.norm), Norm)
        if self.norm == "rms":
            return ComplexRMSNorm(self.width, eps=self.norm_eps)
        return ComplexLayerNorm(self.width, eps=self.norm_eps, shared=self.shared_norms)

    def dropout_layer(self) -> nn.Module:
        return PhaseDropout(self.dropout)

    def read_out_layer(self) -> nn.Module:
        if self.read_out == "linear":
            return nn.Linear(2 * self.width, self.width)
        return {"modulus": Modulus, "real-part": RealPart, "none": nn.Identity}[self.read_out]()

    def _weights(self) -> dict[str, Any]:
        return {"shared_weights": self.shared_weights, "bias": self.bias}
