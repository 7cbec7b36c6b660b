"""Attention with its projections: of a sequence to itself, and of one sequence to another."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.attention import Plan, attend, attention_weights
from wordorder.memory import LayerRecord, MemoryView, RefreshedSlots
from wordorder.ops import merge_read_outs
from wordorder.ops.execution import is_plain

Extend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""A cache as a function: from this step's keys and values (B, G, T, D) to all of them so far (B, G, S, D).

Keys are handed over before any rotation, since `attention` moves them by the plan: every encoding stays exact.
"""

Linear = Callable[[int, int], Any]
"""A function that makes a projection from channels in and out: a torch Linear, or a module in its place."""


class MultiHead(nn.Module):
    """The base of both kinds of attention: sizes of heads, and the maps between channels and heads."""

    def __init__(self, width: int, *, heads: int, key_value_heads: int, dropout: float) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got width={width}, heads={heads}")
        if key_value_heads <= 0 or heads % key_value_heads:
            raise ValueError(f"key_value_heads must divide heads={heads}, got {key_value_heads}")
        self.head_dim, self.dropout = width // heads, dropout
        self.splits = [heads * self.head_dim, key_value_heads * self.head_dim, key_value_heads * self.head_dim]

    def _split(self, x_BTC: Tensor, splits: list[int]) -> tuple[Tensor, ...]:
        """Split a projection into its parts, each (B, T, heads * D) -> (B, heads, T, D)."""
        parts = torch.split(x_BTC, splits, dim=-1)
        return tuple(torch.unflatten(part, -1, (-1, self.head_dim)).transpose(1, 2) for part in parts)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, *, return_lse: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Return the heads' output (B, H, T, D), and the log-sum-exp of the scores (B, H, T) if asked for."""
        return attend(q, k, v, plan, dropout=self.dropout if self.training else 0.0, return_lse=return_lse)

    def _join(self, mixed_BHTD: Tensor) -> Tensor:
        """Join the heads' output to channels, (B, T, C)."""
        mixed_BTHD = mixed_BHTD.transpose(1, 2)
        if torch.compiler.is_exporting():  # exporters lower attention to one with other strides: only a copy is sure
            mixed_BTHD = mixed_BTHD.clone(memory_format=torch.contiguous_format)
        return mixed_BTHD.flatten(2)

    def _weigh(self, q: Tensor, k: Tensor, plan: Plan) -> Tensor:
        return attention_weights(q, k, plan)


class SelfAttention(MultiHead):
    """Queries, keys and values of one sequence in one projection, attention, and the projection back.

    Args:
        width: model channels, C; a multiple of heads.
        heads: query heads, H.
        key_value_heads: key and value heads, G; divides heads. Fewer than heads is grouped-query attention (Ainslie
            et al. 2023, https://arxiv.org/abs/2305.13245).
        dropout: probability that an attention weight is dropped in training.
        linear: makes the projections, from channels in and out.

    Raises:
        ValueError: sizes do not divide.
    """

    def __init__(
        self, width: int, *, heads: int, key_value_heads: int, dropout: float = 0.0, linear: Linear = nn.Linear
    ) -> None:
        super().__init__(width, heads=heads, key_value_heads=key_value_heads, dropout=dropout)
        self.qkv: nn.Linear = linear(width, sum(self.splits))
        self.out: nn.Linear = linear(width, width)

    def forward(self, x_BTC: Tensor, plan: Plan, *, extend: Extend | None = None) -> Tensor:
        """Attend to the sequence itself, (B, T, C) -> (B, T, C).

        Args:
            x_BTC: the tokens of this step.
            plan: order and mask of these queries and of all keys.
            extend: gives all keys and values so far, where a cache holds earlier ones.
        """
        q, k, v = self._heads(x_BTC)
        if extend is not None:
            k, v = extend(k, v)
        return self.out(self._join(self.attend(q, k, v, plan)[0]))

    def with_memory(self, x_BSC: Tensor, view: MemoryView) -> tuple[Tensor, LayerRecord]:
        """Attend to a memory's slots and a segment's tokens; return the output of the rows with queries, and a record.

        Tokens attend to slots and tokens. Slots among the queries attend to the keys of their look-ahead window, and
        what they find is merged with what they knew (`wordorder.ops.merge_read_outs`). ``x_BSC`` holds slots and tokens
        of this step, or tokens alone.
        """
        q, k, v = self._heads(x_BSC, queries=view.queries)
        if view.held is not None:
            k, v = torch.cat((view.held[0], k), dim=2), torch.cat((view.held[1], v), dim=2)
        slots = view.queries - view.tokens
        mixed, lse = self.attend(q[:, :, slots:], k, v, view.plan, return_lse=view.keep_read_outs)
        record = LayerRecord((k, v) if view.keep_keys else None)
        if lse is not None:
            # merged again and again, hence in at least float32
            read_out = mixed.detach().to(torch.promote_types(mixed.dtype, torch.float32))
            record = record._replace(read_out=read_out, normaliser=lse.detach())
        if view.refresh is not None:
            of, window = view.refresh, view.refresh.window
            new, new_lse = self.attend(q[:, :, :slots], k[:, :, window], v[:, :, window], of.plan, return_lse=True)
            assert new_lse is not None
            known, memory = (of.read_out, of.normaliser), of.memory
            merged, lse, alpha = merge_read_outs(*known, new, new_lse, epsilon=memory.epsilon, alpha=memory.alpha)
            record = record._replace(slots=RefreshedSlots(merged.detach(), lse.detach(), alpha.detach()))
            mixed = torch.cat((merged.type_as(v), mixed), dim=2)
        return self.out(self._join(mixed)), record

    def weights(self, x_BTC: Tensor, plan: Plan, *, extend: Extend | None = None) -> Tensor:
        """Return the attention weights (B, H, T, S), without dropout, for inspection.

        Where `forward` comes as well, only one of the two calls may add to the cache.
        """
        q, k, v = self._heads(x_BTC)
        if extend is not None:
            k, _ = extend(k, v)
        return self._weigh(q, k, plan)

    def weights_with_memory(self, x_BSC: Tensor, view: MemoryView) -> Tensor:
        """Return the weights (B, H, T, S) that this step's tokens give to slots and tokens."""
        q, k, _ = self._heads(x_BSC, queries=view.tokens)
        return self._weigh(q, k if view.held is None else torch.cat((view.held[0], k), dim=2), view.plan)

    def _heads(self, x_BTC: Tensor, queries: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries of the last ``queries`` rows (None = all), keys and values of all."""
        if queries is None or queries == x_BTC.shape[1] or not is_plain(self.qkv, nn.Linear):
            q, k, v = self._split(self.qkv(x_BTC), self.splits)
            return q if queries is None else q[:, :, -queries:], k, v
        weight, bias, first = self.qkv.weight, cast(Tensor | None, self.qkv.bias), self.splits[0]
        of_queries, of_others = (None, None) if bias is None else (bias[:first], bias[first:])
        (q,) = self._split(F.linear(x_BTC[:, -queries:], weight[:first], of_queries), self.splits[:1])
        k, v = self._split(F.linear(x_BTC, weight[first:], of_others), self.splits[1:])
        return q, k, v


class CrossAttention(MultiHead):
    """Queries of one sequence, keys and values of another, attention, and the projection back.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, Sec. 3.2.3. Arguments and errors as in `SelfAttention`; both
    sequences have ``width`` channels.
    """

    def __init__(
        self, width: int, *, heads: int, key_value_heads: int, dropout: float = 0.0, linear: Linear = nn.Linear
    ) -> None:
        super().__init__(width, heads=heads, key_value_heads=key_value_heads, dropout=dropout)
        self.q: nn.Linear = linear(width, self.splits[0])
        self.kv: nn.Linear = linear(width, self.splits[1] + self.splits[2])
        self.out: nn.Linear = linear(width, width)

    def forward(self, x_BTC: Tensor, source: Tensor | None, plan: Plan, *, extend: Extend | None = None) -> Tensor:
        """Attend to the source, (B, T, C) -> (B, T, C).

        Args:
            x_BTC: the tokens of this step, which ask.
            source: the sequence that is asked; None where ``extend`` has its keys and values already.
            plan: order and mask of these queries and of all keys.
            extend: given the source's keys and values (none of them, S = 0, without a source), gives those to use.

        Raises:
            ValueError: neither source nor extend is given.
        """
        q, k, v = self._heads(x_BTC, source, extend)
        return self.out(self._join(self.attend(q, k, v, plan)[0]))

    def weights(self, x_BTC: Tensor, source: Tensor | None, plan: Plan, *, extend: Extend | None = None) -> Tensor:
        """Return the attention weights (B, H, T, S), without dropout; arguments as in `forward`."""
        q, k, _ = self._heads(x_BTC, source, extend)
        return self._weigh(q, k, plan)

    def _heads(self, x_BTC: Tensor, source: Tensor | None, extend: Extend | None) -> tuple[Tensor, Tensor, Tensor]:
        if source is None and extend is None:
            raise ValueError("source must be given, or extend, which has its keys and values already")
        (q,) = self._split(self.q(x_BTC), self.splits[:1])
        if source is None:
            k = v = q.new_empty(q.shape[0], self.splits[1] // self.head_dim, 0, q.shape[-1])
        else:
            k, v = self._split(self.kv(source), self.splits[1:])
        return (q, k, v) if extend is None else (q, *extend(k, v))
