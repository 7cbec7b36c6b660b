"""The parts of a Transformer block that word order has no say in: norms, feed-forward networks, projections."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.attention import Plan, attention, attention_weights

Norm = Literal["layer", "rms"]
NormPlacement = Literal["pre", "post"]
Activation = Literal["gelu", "relu", "silu", "swiglu"]


def norm_layer(kind: Norm, width: int, eps: float) -> nn.Module:
    """Layer norm (Ba et al. 2016, https://arxiv.org/abs/1607.06450) or RMS norm (https://arxiv.org/abs/1910.07467)."""
    if kind not in get_args(Norm):
        raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}, got {kind!r}")
    return nn.LayerNorm(width, eps=eps) if kind == "layer" else nn.RMSNorm(width, eps=eps)


class FeedForward(nn.Module):
    """Two linear maps with an activation between, applied to each token.

    ``W2 act(W1 x)`` for gelu (exact), relu and silu; ``W2 (silu(W_gate x) * W1 x)`` for swiglu (Shazeer 2020,
    https://arxiv.org/abs/2002.05202), which has half again as many parameters at the same inner width.

    Args:
        width: model channels, C.
        inner: channels between the maps.
        activation: "gelu", "relu", "silu" or "swiglu".

    Raises:
        ValueError: unknown activation.
    """

    def __init__(self, width: int, *, inner: int, activation: Activation = "gelu") -> None:
        super().__init__()
        if activation not in get_args(Activation):
            raise ValueError(f"activation must be one of {', '.join(get_args(Activation))}, got {activation!r}")
        self.activation, gated = activation, activation == "swiglu"
        self.up = nn.Linear(width, 2 * inner if gated else inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        inner = self.up(x_BTC)
        if self.activation == "swiglu":
            gate, value = inner.chunk(2, dim=-1)
            return self.down(F.silu(gate) * value)
        acts = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}
        return self.down(acts[self.activation](inner))


class SelfAttention(nn.Module):
    """Queries, keys and values of one sequence in one projection, attention, and the projection back.

    Args:
        width: model channels, C; a multiple of heads.
        heads: query heads, H.
        key_value_heads: key and value heads, G; divides heads. Fewer than heads is grouped-query attention (Ainslie
            et al. 2023, https://arxiv.org/abs/2305.13245).
        dropout: probability that an attention weight is dropped in training.

    Raises:
        ValueError: sizes do not divide.
    """

    def __init__(self, width: int, *, heads: int, key_value_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got width={width}, heads={heads}")
        if key_value_heads <= 0 or heads % key_value_heads:
            raise ValueError(f"key_value_heads must divide heads={heads}, got {key_value_heads}")
        self.head_dim, self.dropout = width // heads, dropout
        self.splits = [heads * self.head_dim, key_value_heads * self.head_dim, key_value_heads * self.head_dim]
        self.qkv = nn.Linear(width, sum(self.splits))
        self.out = nn.Linear(width, width)

    def forward(self, x_BTC: Tensor, plan: Plan) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        q, k, v = self._heads(x_BTC)
        mixed_BHTD = attention(q, k, v, plan, dropout=self.dropout if self.training else 0.0)
        mixed_BTHD = mixed_BHTD.transpose(1, 2)
        if torch.compiler.is_exporting():  # exporters lower attention to one with other strides: only a copy is sure
            mixed_BTHD = mixed_BTHD.clone(memory_format=torch.contiguous_format)
        return self.out(mixed_BTHD.flatten(2))

    def weights(self, x_BTC: Tensor, plan: Plan) -> Tensor:
        """The attention weights (B, H, T, S), without dropout; for looking at."""
        q, k, _ = self._heads(x_BTC)
        return attention_weights(q, k, plan)

    def _heads(self, x_BTC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (
            part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in self.qkv(x_BTC).split(self.splits, -1)
        )
        return q, k, v
