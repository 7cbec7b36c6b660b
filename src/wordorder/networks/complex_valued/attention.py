"""Attention of complex heads: real attention of stacked vectors, or by the modulus of the product."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention import Plan
from wordorder.attention.backends.reference import Reference, log_sum_exp, weights
from wordorder.encodings.places import check_choice
from wordorder.networks.complex_valued.layers import ComplexBias, ComplexLinear
from wordorder.networks.multi_head import CrossAttention, MultiHead, SelfAttention
from wordorder.ops.complex import modulus_scores, split, streams
from wordorder.ops.execution import no_autocast

Scores = Literal["real-part", "modulus"]


class ComplexHeads(MultiHead):
    """Heads of d complex channels as attention sees them: 2d real ones, ``[real | imag]``.

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, Eq. 14, scores a query and a key by the real part of ``q k*``
    ("real-part") or by its modulus ("modulus")::

        Re(q k*) = q_r . k_r + q_i . k_i            attention of the stacked vectors, on every backend
        |q k*|   = hypot(Re(q k*), q_i . k_r - q_r . k_i)

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
        scores: "real-part" or "modulus"; plans for the latter must be of the backend "reference", since no fused
            kernel computes it.

    Raises:
        ValueError: sizes do not divide, or unknown scores.
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
        scores: Scores = "real-part",
    ) -> None:
        check_choice("scores", scores, Scores)
        super().__init__(  # of the attention that comes after this class
            width,
            heads=heads,
            key_value_heads=key_value_heads,
            dropout=dropout,
            linear=partial(ComplexLinear, shared=shared_weights, bias=bias),  # pyright: ignore[reportCallIssue]
        )
        self.modulus = scores == "modulus"

    def _split(self, x_BTC: Tensor, splits: list[int]) -> tuple[Tensor, ...]:
        """Split a projection into parts of heads * d complex channels each, (B, heads, T, 2d), by one copy."""
        parts = torch.unflatten(streams(x_BTC), -1, (-1, self.head_dim))  # (B, T, 2, all heads, d)
        heads_BATD = parts.permute(0, 3, 1, 2, 4).flatten(-2)
        return torch.split(heads_BATD, [size // self.head_dim for size in splits], dim=1)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, *, return_lse: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        if not self.modulus:
            return super().attend(q, k, v, plan, return_lse=return_lse)
        logits_BHTS = self._modulus_logits(q, k, plan)
        with no_autocast(q.device):
            dropped = F.dropout(weights(logits_BHTS), self.dropout, self.training)
            mixed_BHTD = (dropped @ self._for_all_heads(v, q).to(dropped.dtype)).type_as(v)
            return mixed_BHTD, log_sum_exp(logits_BHTS) if return_lse else None

    def _join(self, mixed_BHTD: Tensor) -> Tensor:
        """Return the heads' outputs as stacked channels, (B, T, 2C)."""
        apart = torch.unflatten(super()._join(mixed_BHTD), -1, (-1, 2, self.head_dim))
        return apart.transpose(-3, -2).flatten(-3)

    def _weigh(self, q: Tensor, k: Tensor, plan: Plan) -> Tensor:
        return weights(self._modulus_logits(q, k, plan)).type_as(q) if self.modulus else super()._weigh(q, k, plan)

    def _modulus_logits(self, q: Tensor, k: Tensor, plan: Plan) -> Tensor:
        """Return ``scale |q k*| + bias + content``, -inf where a key is hidden."""
        # the plans of other backends may not say which keys are hidden
        if not isinstance(plan.backend, Reference):
            raise ValueError(
                f"scores='modulus' is in no fused kernel: backend must be 'reference', got {plan.backend.name!r}"
            )
        order, visible = plan.order, plan.prepared.mask_B1TS
        k, wide = self._for_all_heads(k, q), torch.promote_types(q.dtype, torch.float32)
        content = [term.scores(q, k, order.scale, visible) for term in order.content]
        q, k = order.rotate_queries(q), order.rotate_keys(k)
        with no_autocast(q.device):
            logits = order.scale * modulus_scores(split(q.to(wide)), split(k.to(wide)))
        for term in [*([] if order.bias is None else [order.bias.written_out(wide)]), *content]:
            logits = logits + term.to(wide)
        return logits if visible is None else logits.masked_fill(~visible, -torch.inf)

    @staticmethod
    def _for_all_heads(x_BGSD: Tensor, q_BHTD: Tensor) -> Tensor:
        groups = q_BHTD.shape[1] // x_BGSD.shape[1]
        return x_BGSD if groups == 1 else x_BGSD.repeat_interleave(groups, dim=1)


class ComplexSelfAttention(ComplexHeads, SelfAttention):
    """`SelfAttention` of stacked complex vectors, (B, T, 2C) -> (B, T, 2C)."""


class ComplexCrossAttention(ComplexHeads, CrossAttention):
    """`CrossAttention` of stacked complex vectors."""
