"""Attention of complex heads: real attention of stacked vectors, or by the modulus of the product."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from wordorder.attention.backends.reference import Reference
from wordorder.networks.complex_valued.layers import ComplexBias, ComplexLinear
from wordorder.networks.cross_attention import CrossAttention
from wordorder.networks.multi_head import MultiHead, SelfAttention
from wordorder.ops.complex import modulus_scores, split, streams

Scores = Literal["real-part", "modulus"]


class ModulusScores(Reference):
    """Scores by the modulus of the product, ``scale |q k*|``, which no fused kernel computes."""

    name = "modulus"
    linear = False

    def products(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float) -> Tensor:
        return scale * modulus_scores(split(q_BHTD), split(k_BHSD))


class ComplexHeads(MultiHead):
    """Heads of d complex channels as attention sees them: 2d real ones, ``[real | imag]``.

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, Eq. 14, scores a query and a key by the real part of ``q k*``
    ("real-part") or by its modulus ("modulus")::

        Re(q k*) = q_r . k_r + q_i . k_i            attention of the stacked vectors, on every backend
        |q k*|   = hypot(Re(q k*), q_i . k_r - q_r . k_i)      plans of the backend `ModulusScores`

    and mixes both parts of the values by the same real weights. Whatever moves stacked queries and keys acts as it
    should: a rotation (RoPE with its pairs k, k + d) multiplies each complex channel by exp(i w p).

    The scale is 1/sqrt(2d), that of 2d real channels: each part of the stacked vectors comes out of a norm and a
    projection with about unit variance, so Re(q k*) is a sum of 2d products of unit variance. The paper's code for
    translation has it too; the one for text classification has 1/sqrt(d).

    Args:
        width: complex channels, C; a multiple of heads.
        heads: query heads, H, of d = C / H complex channels; further arguments as in `SelfAttention`.
        shared_weights: real projections, the same on both streams.
        bias: of the projections; see `ComplexLinear`.

    Raises:
        ValueError: sizes do not divide.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        key_value_heads: int,
        dropout: float = 0.0,
        shared_weights: bool = False,
        bias: ComplexBias = "complex",
    ) -> None:
        super().__init__(  # of the attention that comes after this class
            width,
            heads=heads,
            key_value_heads=key_value_heads,
            dropout=dropout,
            linear=partial(ComplexLinear, shared=shared_weights, bias=bias),  # pyright: ignore[reportCallIssue]
        )

    def _split(self, x_BTC: Tensor, splits: list[int]) -> tuple[Tensor, ...]:
        """Split a projection into parts of heads * d complex channels each, (B, heads, T, 2d), by one copy."""
        parts = torch.unflatten(streams(x_BTC), -1, (-1, self.head_dim))  # (B, T, 2, all heads, d)
        heads_BATD = parts.permute(0, 3, 1, 2, 4).flatten(-2)
        return torch.split(heads_BATD, splits, dim=1)

    def _join(self, mixed_BHTD: Tensor) -> Tensor:
        """Return the heads' outputs as stacked channels, (B, T, 2C)."""
        apart = torch.unflatten(super()._join(mixed_BHTD), -1, (-1, 2, self.head_dim))
        return apart.transpose(-3, -2).flatten(-3)


class ComplexSelfAttention(ComplexHeads, SelfAttention):
    """`SelfAttention` of stacked complex vectors, (B, T, 2C) -> (B, T, 2C)."""


class ComplexCrossAttention(ComplexHeads, CrossAttention):
    """`CrossAttention` of stacked complex vectors."""
