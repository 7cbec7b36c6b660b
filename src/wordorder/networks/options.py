"""Sizes and style of a Transformer in one value, and the parts of its layers that no encoding changes."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, cast

from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.attention import Backend
from wordorder.encodings import Composition, Use, build_encoding
from wordorder.encodings.places import check_choice, check_positive
from wordorder.memory import Memory
from wordorder.networks.multi_head import SelfAttention

if TYPE_CHECKING:
    from wordorder.networks.cross_attention import CrossAttention

Norm = Literal["layer", "rms"]
NormPlacement = Literal["pre", "post"]
Activation = Literal["gelu", "relu", "silu", "swiglu"]
HeadNorm = Literal["none", "layer", "rms"]
Block = Literal["classic", "modern"]

BLOCKS: dict[str, dict[str, Any]] = {
    "classic": {"norm": "layer", "activation": "gelu", "qk_norm": "none", "use_bias": True},
    "modern": {"norm": "rms", "activation": "swiglu", "qk_norm": "rms", "use_bias": False},
}
"""The parts of a block by its name, where no option sets them: BERT's block, and that of decoders since 2024."""


ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
"""Activations of each number alone."""


def norm_layer(kind: Norm, width: int, eps: float) -> nn.Module:
    """Return a layer norm or an RMS norm.

    Ba et al. 2016, https://arxiv.org/abs/1607.06450; Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467.
    """
    check_choice("norm", kind, Norm)
    return nn.LayerNorm(width, eps=eps) if kind == "layer" else nn.RMSNorm(width, eps=eps)


class FeedForward(nn.Module):
    """Two linear maps with an activation between, applied to each token.

    ``W2 act(W1 x)`` for gelu (exact), relu and silu; ``W2 (silu(W_gate x) * W1 x)`` for swiglu (Shazeer 2020,
    https://arxiv.org/abs/2002.05202), which has half again as many parameters at the same inner width.

    Args:
        width: model channels, C.
        inner: channels between the maps.
        activation: "gelu", "relu", "silu" or "swiglu".
        bias: the maps have biases.

    Raises:
        ValueError: unknown activation.
    """

    def __init__(self, width: int, *, inner: int, activation: Activation = "gelu", bias: bool = True) -> None:
        super().__init__()
        check_choice("activation", activation, Activation)
        self.activation, gated = activation, activation == "swiglu"
        self.up = nn.Linear(width, 2 * inner if gated else inner, bias=bias)
        self.down = nn.Linear(inner, width, bias=bias)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Apply the network to each token, (B, T, C) -> (B, T, C)."""
        inner = self.up(x_BTC)
        if self.activation == "swiglu":
            gate, value = inner.chunk(2, dim=-1)
            return self.down(F.silu(gate) * value)
        return self.down(ACTIVATIONS[self.activation](inner))


class TransformerKeywords(TypedDict, total=False):
    """Keywords of the networks' constructors: the fields of `TransformerOptions`."""

    width: int
    layers: int
    heads: int
    key_value_heads: int | None
    feedforward: int | None
    max_positions: int
    encoding: str
    encoding_options: Mapping[str, Any] | None
    block: Block
    norm: Norm | None
    norm_placement: NormPlacement
    norm_eps: float
    embedding_norm: bool | None
    final_norm: bool | None
    activation: Activation | None
    qk_norm: HeadNorm | None
    use_bias: bool | None
    dropout: float
    attention_dropout: float
    padding_idx: int | None
    embedding_scale: float | None
    memory: Memory | None


@dataclass(frozen=True, kw_only=True)
class TransformerOptions:
    """Sizes and style of a Transformer, and the parts that its layers are made of.

    >>> from wordorder.networks import Encoder, TransformerOptions
    >>> Encoder(1000, width=64, layers=2).options == TransformerOptions(width=64, layers=2)
    True

    Networks and layers are written against this class; complex networks are the same ones over `ComplexOptions`.

    Args:
        width: model channels, C; a multiple of heads.
        layers: number of layers; positive.
        heads: query heads, H.
        key_value_heads: key and value heads, G (grouped queries); None = heads.
        feedforward: inner channels of the feed-forward networks; None = 4 * width.
        max_positions: longest text in tokens, for encodings with a table; with a memory, its slots and a segment.
        encoding: a name of the catalogue, several joined by "+", or a pattern over the layers; see `pattern_of`.
        encoding_options: options of the encoding; see `build_encoding`.
        block: "classic" (BERT's and GPT-2's: layer norms, gelu, biases) or "modern" (RMS norms, also of queries and
            keys, swiglu, no biases). norm, activation, qk_norm and use_bias go before it; None = as the block has it.
        norm: "layer" or "rms".
        norm_placement: "post" (2018) or "pre" (modern; trains without warm-up troubles, hence the default).
        norm_eps: added to the variance.
        embedding_norm: normalise the embeddings; None = with post-norm only.
        final_norm: normalise the last layer's output; None = with pre-norm only.
        activation: of the feed-forward networks, "gelu" (exact), "relu", "silu" or "swiglu".
        qk_norm: norm of each head's queries and keys, before any position, with a gain for each channel that all heads
            share, as in Qwen 3 and Gemma 3: "rms", "layer" (Henry et al. 2020, https://arxiv.org/abs/2010.04245, has
            the L2 norm) or "none". Caches hold keys after it.
        use_bias: projections and feed-forward networks have biases.
        dropout: on embeddings and on each sublayer's output.
        attention_dropout: on attention weights.
        padding_idx: token id whose embedding is 0 and stays 0 (unless tied to an output layer).
        embedding_scale: embeddings, also those given in place of token ids, are multiplied by it before positions are
            added; None = 1. Transformer-XL: the square root of width.
        memory: of earlier segments, such as `LookAheadMemory`; None = there is none.

    Raises:
        ValueError: a size is out of range, an unknown style, or a memory that is none.
    """

    width: int = 256
    layers: int = 4
    heads: int = 4
    key_value_heads: int | None = None
    feedforward: int | None = None
    max_positions: int = 512
    encoding: str = "tupe-r"
    encoding_options: Mapping[str, Any] | None = None
    block: Block = "classic"
    norm: Norm | None = None
    norm_placement: NormPlacement = "pre"
    norm_eps: float = 1e-5
    embedding_norm: bool | None = None
    final_norm: bool | None = None
    activation: Activation | None = None
    qk_norm: HeadNorm | None = None
    use_bias: bool | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1
    padding_idx: int | None = None
    embedding_scale: float | None = None
    memory: Memory | None = None

    @classmethod
    def of(cls, network: str, given: "TransformerOptions | None", keywords: Mapping[str, Any]) -> Self:
        """Return the options that a network's constructor was given, as a value or as keywords.

        Raises:
            TypeError: both are given, a value of other options, or an unknown keyword (with the nearest known one).
        """
        if given is not None:
            if not isinstance(given, cls) or keywords:
                also = f" beside {', '.join(keywords)}" if keywords else ""
                hint = "; options of the encoding are encoding_options={...}" if isinstance(given, Mapping) else ""
                raise TypeError(
                    f"{network} takes options as one {cls.__name__} or as keywords, got a {type(given).__name__}"
                    f"{also}{hint}"
                )
            return given
        known = [field.name for field in fields(cls)]
        for name in keywords:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
                hint = "; a causal network is wordorder.Decoder" if name == "causal" else hint
                raise TypeError(f"{network}() got an unexpected keyword argument {name!r}{hint}")
        return cls(**keywords)

    def __post_init__(self) -> None:
        check_positive(width=self.width, heads=self.heads, layers=self.layers)
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got width={self.width}, heads={self.heads}")
        sizes = {"key_value_heads": self.key_value_heads, "feedforward": self.feedforward}
        check_positive(**{name: size for name, size in sizes.items() if size is not None})
        for name, rate in (("dropout", self.dropout), ("attention_dropout", self.attention_dropout)):
            if not 0 <= rate < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {rate}")
        check_choice("norm_placement", self.norm_placement, NormPlacement)
        check_choice("block", self.block, Block)
        for name, of_block in BLOCKS[self.block].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, of_block)  # frozen, and not yet handed out
        check_choice("qk_norm", cast("str", self.qk_norm), HeadNorm)
        if self.memory is not None and not isinstance(cast("object", self.memory), Memory):
            raise ValueError(f"memory must be a Memory, such as LookAheadMemory(length), or None, got {self.memory!r}")

    @property
    def channels(self) -> int:
        """Size of the last axis of hidden states between layers: C; 2C where they are complex, ``[real | imag]``."""
        return self.width

    @property
    def head_dim(self) -> int:
        """Size of the last axis of queries and keys as attention sees them."""
        return self.channels // self.heads

    @property
    def pre(self) -> bool:
        """True if norms come before the sublayers."""
        return self.norm_placement == "pre"

    @property
    def backend(self) -> Backend | None:
        """The one backend that computes the attention of these blocks; None = any."""
        return None

    @property
    def inner(self) -> int:
        """Number of channels between the maps of the feed-forward network."""
        return self.feedforward or 4 * self.width

    def composition(self, vocabulary: int, use: Use) -> Composition:
        """Build the encoding, for networks of this vocabulary."""
        return build_encoding(
            self.encoding,
            width=self.channels,
            heads=self.heads,
            layers=self.layers,
            max_positions=self.max_positions,
            use=use,
            options=self.encoding_options,
            vocabulary=vocabulary,
            padding_idx=self.padding_idx,
            complex_valued=self.channels != self.width,
            with_memory=self.memory is not None,
            looks_right=self.memory is not None and self.memory.looks_right,
        )

    def attention(self) -> SelfAttention:
        """Build the self-attention of a layer."""
        return SelfAttention(self.width, **self._heads(), **self._style())

    def cross_attention(self) -> "CrossAttention":
        """Build the cross-attention of a layer."""
        from wordorder.networks.cross_attention import CrossAttention  # what networks without it never load

        return CrossAttention(self.width, **self._heads(), **self._style())

    def feedforward_network(self) -> nn.Module:
        """Build the feed-forward network, from channels to channels, for each token by itself."""
        assert self.activation is not None
        bias = bool(self.use_bias)
        return FeedForward(self.width, inner=self.inner, activation=self.activation, bias=bias)

    def norm_layer(self) -> nn.Module:
        """Build a norm over the channels of each token."""
        assert self.norm is not None
        return norm_layer(self.norm, self.width, self.norm_eps)

    def dropout_layer(self) -> nn.Module:
        """Build the dropout of channels."""
        return nn.Dropout(self.dropout)

    def read_out_layer(self) -> nn.Module:
        """Build the map from the channels of the last layer to the real (B, T, C) that heads read."""
        return nn.Identity()

    def _style(self) -> dict[str, Any]:
        """Return norms of heads and projections as attention is built with."""
        style: dict[str, Any] = {} if self.use_bias else {"linear": partial(nn.Linear, bias=False)}
        if self.qk_norm not in (None, "none"):
            style["norm"] = partial(norm_layer, self.qk_norm, eps=self.norm_eps)
        return style

    def _heads(self) -> dict[str, Any]:
        groups = self.key_value_heads or self.heads
        return {"heads": self.heads, "key_value_heads": groups, "dropout": self.attention_dropout}
