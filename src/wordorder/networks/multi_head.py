"""Attention with its projections: what all kinds share, and that of a sequence to itself."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.attention import Keys, LayerStep, Plan, Record, attend
from wordorder.encodings import TokenFeatures
from wordorder.encodings.places import NO_FEATURES
from wordorder.ops.execution import call_as_constant, is_plain

Linear = Callable[[int, int], Any]
"""A function that makes a projection from channels in and out: a torch Linear, or a module in its place."""
Norm = Callable[[int], nn.Module]
"""A function that makes a norm of so many channels."""


class MultiHead(nn.Module):
    """The base of both kinds of attention: sizes of heads, and the maps between channels and heads.

    Args:
        norm: makes a norm of the channels of each query and key, before any move; None = there is none.
    """

    def __init__(
        self, width: int, *, heads: int, key_value_heads: int, dropout: float, norm: Norm | None = None
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got width={width}, heads={heads}")
        if key_value_heads <= 0 or heads % key_value_heads:
            raise ValueError(f"key_value_heads must divide heads={heads}, got {key_value_heads}")
        self.head_dim, self.dropout = width // heads, dropout
        self.splits = [heads, key_value_heads, key_value_heads]
        """Heads of queries, of keys and of values."""
        self.q_norm, self.k_norm = (None, None) if norm is None else (norm(self.head_dim), norm(self.head_dim))

    def _normed(self, q_BHTD: Tensor, k_BHSD: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys after their norms, in the dtype that they had."""
        if self.q_norm is None or self.k_norm is None:
            return q_BHTD, k_BHSD
        dtype = next(self.q_norm.parameters()).dtype  # wider than that of q under autocast
        return self.q_norm(q_BHTD.to(dtype)).type_as(q_BHTD), self.k_norm(k_BHSD.to(dtype)).type_as(k_BHSD)

    def _split(self, x_BTC: Tensor, splits: list[int]) -> tuple[Tensor, ...]:
        """Split a projection (B, T, all heads * D) into its parts, each (B, heads, T, D)."""
        x_BHTD = torch.unflatten(x_BTC, -1, (-1, self.head_dim)).transpose(1, 2)
        return torch.split(x_BHTD, splits, dim=1)

    def attend(
        self, q: Tensor, keys: Keys, plan: Plan, features: dict[str, Tensor], *, return_lse: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Return the heads' output (B, H, T, D), and the log-sum-exp of the scores (B, H, T) if asked for."""
        dropout, both = self.dropout if self.training else 0.0, TokenFeatures(features, keys.features)
        return attend(q, keys.k, keys.v, plan, both, dropout=dropout, return_lse=return_lse)

    def _join(self, mixed_BHTD: Tensor) -> Tensor:
        """Join the heads' output to channels, (B, T, C)."""
        mixed_BTHD = mixed_BHTD.transpose(1, 2)
        if torch.compiler.is_exporting():  # exporters lower attention to one with other strides: only a copy is sure
            mixed_BTHD = mixed_BTHD.clone(memory_format=torch.contiguous_format)
        return mixed_BTHD.flatten(2)


class SelfAttention(MultiHead):
    """Queries, keys and values of one sequence in one projection, attention, and the projection back.

    Args:
        width: model channels, C; a multiple of heads.
        heads: query heads, H.
        key_value_heads: key and value heads, G; divides heads. Fewer than heads is grouped-query attention (Ainslie
            et al. 2023, https://arxiv.org/abs/2305.13245).
        dropout: probability that an attention weight is dropped in training.
        norm: as in `MultiHead`.
        linear: makes the projections, from channels in and out.

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
        norm: Norm | None = None,
        linear: Linear = nn.Linear,
    ) -> None:
        super().__init__(width, heads=heads, key_value_heads=key_value_heads, dropout=dropout, norm=norm)
        self.qkv: nn.Linear = linear(width, sum(self.splits) * self.head_dim)
        self.out: nn.Linear = linear(width, width)

    def forward(self, x_BSC: Tensor, step: LayerStep) -> tuple[Tensor, Record]:
        """Attend to the sequence itself, (B, S, C) -> (B, queries, C), and return what the step wants to know.

        ``x_BSC`` holds the tokens of this step, in some memories behind the slots.
        """
        terms, features, input_rows = step.plan.terms, NO_FEATURES, None
        if len(terms.inputs) > 0:
            x_BSC, input_rows = step.change_input(x_BSC)
        q, k, v = self._heads(x_BSC, step.queries)
        if self.q_norm is not None:
            q, k = self._normed(q, k)
        if len(terms.content) > 0:  # a tracer knows no "not" of a tuple
            features = terms.features(x_BSC, step.queries)
        keys = Keys(k, v, features.of_keys)
        if step.extend is not None:
            keys = step.extend(keys).last(step.plan.call.keys)  # a layer with a window sees no more
        mixed, left = step.attend(self, q, keys, features.of_queries)
        weights = step.weigh(q, keys, features.of_queries)
        return self.out(self._join(mixed)), Record(keys if step.keep else None, left, weights, input_rows=input_rows)

    def keys_of(self, x_BNC: Tensor) -> Keys:
        """Return keys and values of further rows, which give the weights no gradient."""
        _, k, v = self._split(call_as_constant(self.qkv, x_BNC), self.splits)
        if self.k_norm is not None:
            dtype = next(self.k_norm.parameters()).dtype
            k = call_as_constant(self.k_norm, k.to(dtype)).type_as(k)
        return Keys(k, v)

    def _heads(self, x_BTC: Tensor, queries: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries of the last ``queries`` rows (None = all), keys and values of all."""
        if queries is None or queries == x_BTC.shape[1] or not is_plain(self.qkv, nn.Linear):
            q, k, v = self._split(self.qkv(x_BTC), self.splits)
            return q if queries is None else q[:, :, -queries:], k, v
        weight, bias, first = self.qkv.weight, cast(Tensor | None, self.qkv.bias), self.splits[0] * self.head_dim
        of_queries, of_others = (None, None) if bias is None else (bias[:first], bias[first:])
        (q,) = self._split(F.linear(x_BTC[:, -queries:], weight[:first], of_queries), self.splits[:1])
        k, v = self._split(F.linear(x_BTC, weight[first:], of_others), self.splits[1:])
        return q, k, v
