"""The parts of a Transformer block that word order has no say in: norms, feed-forward networks, projections."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.networks.multi_head import CrossAttention, SelfAttention

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


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Sizes and style of a network's layers, and the parts that a layer is made of.

    Networks and layers are written against this class; complex networks are the same ones over `ComplexBlocks`.

    Args:
        width: model channels, C; a multiple of heads.
        heads: query heads, H.
        key_value_heads: key and value heads, G; None = heads.
        feedforward: inner channels of the feed-forward network; None = 4 * width.
        norm: "layer" or "rms".
        norm_placement: "pre" or "post"; see `EncoderLayer`.
        norm_eps: added to the variance.
        activation: of the feed-forward network.
        dropout: on embeddings and on each sublayer's output.
        attention_dropout: on attention weights.

    Raises:
        ValueError: a size is out of range, or an unknown style.
    """

    width: int
    heads: int
    key_value_heads: int | None = None
    feedforward: int | None = None
    norm: Norm = "layer"
    norm_placement: NormPlacement = "pre"
    norm_eps: float = 1e-5
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1

    def __post_init__(self) -> None:
        for name, value in (("width", self.width), ("heads", self.heads)):
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got width={self.width}, heads={self.heads}")
        known = get_args(NormPlacement)
        if self.norm_placement not in known:
            raise ValueError(f"norm_placement must be one of {', '.join(known)}, got {self.norm_placement!r}")

    @property
    def channels(self) -> int:
        """The last axis of hidden states between layers: C; 2C where they are complex, ``[real | imag]``."""
        return self.width

    @property
    def head_dim(self) -> int:
        """The last axis of queries and keys as attention sees them."""
        return self.channels // self.heads

    @property
    def pre(self) -> bool:
        """Whether norms stand before the sublayers."""
        return self.norm_placement == "pre"

    @property
    def backend(self) -> str | None:
        """The one backend of attention whose plans these blocks can read; None = all of them."""
        return None

    @property
    def inner(self) -> int:
        """Channels between the maps of the feed-forward network."""
        return self.feedforward or 4 * self.width

    def attention(self) -> nn.Module:
        """A `SelfAttention`: ``forward(x, plan, *, extend=None)`` and ``weights`` of the same arguments."""
        return SelfAttention(self.width, **self._heads())

    def cross_attention(self) -> nn.Module:
        """A `CrossAttention`: ``forward(x, source, plan, *, extend=None)`` and ``weights`` of the same arguments."""
        return CrossAttention(self.width, **self._heads())

    def feedforward_network(self) -> nn.Module:
        """Channels to channels, for each token by itself."""
        return FeedForward(self.width, inner=self.inner, activation=self.activation)

    def norm_layer(self) -> nn.Module:
        """A norm over the channels of each token."""
        return norm_layer(self.norm, self.width, self.norm_eps)

    def dropout_layer(self) -> nn.Module:
        """Dropout of channels."""
        return nn.Dropout(self.dropout)

    def read_out(self) -> nn.Module:
        """From the channels of the last layer to the real (B, T, C) that heads read."""
        return nn.Identity()

    def _heads(self) -> dict[str, Any]:
        groups = self.key_value_heads or self.heads
        return {"heads": self.heads, "key_value_heads": groups, "dropout": self.attention_dropout}
