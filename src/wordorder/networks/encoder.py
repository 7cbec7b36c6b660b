"""The Transformer encoder, with any encoding of the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from wordorder.attention import Plan, describe, make_plan
from wordorder.encodings import build_encoding
from wordorder.networks.blocks import Activation, FeedForward, Norm, NormPlacement, SelfAttention, norm_layer
from wordorder.networks.initialisation import initialise
from wordorder.ops import Contiguous, Positions, Visibility, as_positions
from wordorder.ops.precision import working_dtype


@dataclass(frozen=True)
class EncoderOutput:
    """What an encoder returns.

    Args:
        hidden: the last layer's output, after the final norm, (B, T, C).
        all_hidden: embeddings and every layer's output, if asked for; the last one is ``hidden``.
        attentions: every layer's attention weights (B, H, T, T), if asked for.
    """

    hidden: Tensor
    all_hidden: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each inside a residual connection with a norm.

    ``post``: ``x = norm(x + f(x))`` (Vaswani et al. 2017; BERT, TUPE). ``pre``: ``x = x + f(norm(x))`` (Xiong et al.
    2020, https://arxiv.org/abs/2002.04745).

    Args:
        width: model channels, C.
        heads: query heads, H.
        key_value_heads: key and value heads.
        feedforward: inner channels of the feed-forward network.
        norm: "layer" or "rms".
        norm_placement: "pre" or "post".
        norm_eps: added to the variance.
        activation: of the feed-forward network.
        dropout: on the output of each sublayer.
        attention_dropout: on attention weights.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        key_value_heads: int,
        feedforward: int,
        norm: Norm,
        norm_placement: NormPlacement,
        norm_eps: float,
        activation: Activation,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        self.pre = norm_placement == "pre"
        self.attention = SelfAttention(width, heads=heads, key_value_heads=key_value_heads, dropout=attention_dropout)
        self.attention_norm = norm_layer(norm, width, norm_eps)
        self.feedforward = FeedForward(width, inner=feedforward, activation=activation)
        self.feedforward_norm = norm_layer(norm, width, norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTC: Tensor, plan: Plan) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        if self.pre:
            x_BTC = x_BTC + self.dropout(self.attention(self.attention_norm(x_BTC), plan))
            return x_BTC + self.dropout(self.feedforward(self.feedforward_norm(x_BTC)))
        x_BTC = self.attention_norm(x_BTC + self.dropout(self.attention(x_BTC, plan)))
        return self.feedforward_norm(x_BTC + self.dropout(self.feedforward(x_BTC)))

    def attention_weights(self, x_BTC: Tensor, plan: Plan) -> Tensor:
        """The weights that `forward` uses on the same input, (B, H, T, T), without dropout."""
        return self.attention.weights(self.attention_norm(x_BTC) if self.pre else x_BTC, plan)


class Encoder(nn.Module):
    """A bidirectional Transformer over token ids, plain torch.

    >>> import torch, wordorder
    >>> encoder = wordorder.Encoder(1000, width=64, layers=2, heads=4, encoding="tupe-r")
    >>> encoder(torch.randint(1000, (2, 16))).hidden.shape
    torch.Size([2, 16, 64])

    Word order is prepared once per forward and shared by all layers. With post-norm the embeddings are normalised (as
    in BERT and TUPE), with pre-norm the output is; both can be chosen.

    Args:
        vocabulary: number of token ids, V; positive.
        width: model channels, C; a multiple of heads.
        layers: number of layers; positive.
        heads: attention heads, H.
        key_value_heads: fewer key and value heads than query heads (grouped queries); default: heads.
        feedforward: inner channels of the feed-forward networks; default: 4 * width.
        max_positions: longest text in tokens, for encodings with a table.
        encoding: a name of the catalogue, or several joined by "+".
        encoding_options: options of the encoding; see `build_encoding`.
        norm: "layer" (2018) or "rms" (modern).
        norm_placement: "post" (2018) or "pre" (modern; trains without warm-up troubles, hence the default).
        norm_eps: added to the variance; 1e-5.
        embedding_norm: normalise the embeddings; default: with post-norm only.
        activation: "gelu" (exact), "relu", "silu" or "swiglu".
        dropout: on embeddings and on each sublayer's output.
        attention_dropout: on attention weights.
        padding_idx: token id whose embedding is 0 and stays 0 (unless tied to an output layer).

    Raises:
        BadInput: unknown encoding or option.
        ValueError: a size is out of range.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 256,
        layers: int = 4,
        heads: int = 4,
        key_value_heads: int | None = None,
        feedforward: int | None = None,
        max_positions: int = 512,
        encoding: str = "tupe-r",
        encoding_options: Mapping[str, Any] | None = None,
        norm: Norm = "layer",
        norm_placement: NormPlacement = "pre",
        norm_eps: float = 1e-5,
        embedding_norm: bool | None = None,
        activation: Activation = "gelu",
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("vocabulary", vocabulary), ("width", width), ("layers", layers), ("heads", heads)):
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got width={width}, heads={heads}")
        if norm_placement not in get_args(NormPlacement):
            raise ValueError(
                f"norm_placement must be one of {', '.join(get_args(NormPlacement))}, got {norm_placement!r}"
            )
        self.heads, self.head_dim, self.attention_dropout = heads, width // heads, attention_dropout
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=padding_idx)
        self.encoding = build_encoding(
            encoding,
            width=width,
            heads=heads,
            layers=layers,
            max_positions=max_positions,
            use="encoder",
            options=encoding_options,
        )
        post = norm_placement == "post"
        normalise_embeddings = post if embedding_norm is None else embedding_norm
        self.embedding_norm = norm_layer(norm, width, norm_eps) if normalise_embeddings else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                width,
                heads=heads,
                key_value_heads=key_value_heads or heads,
                feedforward=feedforward or 4 * width,
                norm=norm,
                norm_placement=norm_placement,
                norm_eps=norm_eps,
                activation=activation,
                dropout=dropout,
                attention_dropout=attention_dropout,
            )
            for _ in range(layers)
        )
        self.final_norm = nn.Identity() if post else norm_layer(norm, width, norm_eps)
        self.gradient_checkpointing = False
        initialise(self)

    def forward(
        self,
        token_ids_BT: Tensor | None = None,
        positions: Positions | Tensor | None = None,
        *,
        embeddings_BTC: Tensor | None = None,
        valid_BT: Tensor | None = None,
        backend: str | None = None,
        return_all_hidden: bool = False,
        return_attentions: bool = False,
    ) -> EncoderOutput:
        """Encode token ids, or embeddings in their place.

        Args:
            token_ids_BT: long (B, T).
            positions: where the tokens stand; typed, or a long tensor (B, T); default 0 .. T - 1 for every example.
                For rows padded on the left pass ``Contiguous(T, offset)`` with one (negative) offset per example.
            embeddings_BTC: instead of token ids, (B, T, C).
            valid_BT: bool, False where a token is padding; None = no padding.
            backend: of attention, as in `choose_backend`; None chooses.
            return_all_hidden: also return every layer's output.
            return_attentions: also return every layer's attention weights; slow.

        Raises:
            ValueError: neither or both of ids and embeddings are given, ids are not integers (B, T) or outside the
                vocabulary (looked at on the CPU only), or a position is beyond a learned table.
        """
        if (token_ids_BT is None) == (embeddings_BTC is None):
            raise ValueError("pass exactly one of token_ids and embeddings")
        if token_ids_BT is not None:
            self._check_ids(token_ids_BT)
        x_BTC = self.embedding(token_ids_BT) if embeddings_BTC is None else embeddings_BTC
        where = Contiguous(x_BTC.shape[1]) if positions is None else as_positions(positions)
        plan = self.plan(where, x_BTC, valid_BT, backend=backend, return_attentions=return_attentions)
        x_BTC = self.dropout(self.embedding_norm(self.encoding.embed(x_BTC, where)))
        return self._run(x_BTC, plan, return_all_hidden, return_attentions)

    def _check_ids(self, token_ids_BT: Tensor) -> None:
        if token_ids_BT.dim() != 2 or token_ids_BT.is_floating_point() or token_ids_BT.dtype == torch.bool:
            shape = tuple(token_ids_BT.shape)
            raise ValueError(f"token ids must be integers (batch, tokens), got {token_ids_BT.dtype} {shape}")
        # reading ids on a GPU would stop the stream, and in a compiled graph would break it
        if torch.compiler.is_compiling() or token_ids_BT.device.type != "cpu" or token_ids_BT.numel() == 0:
            return
        low, high = (int(end) for end in token_ids_BT.aminmax())
        if low < 0 or high >= self.embedding.num_embeddings:
            raise ValueError(f"token ids must lie in 0 .. {self.embedding.num_embeddings - 1}, got {low} .. {high}")

    def plan(
        self,
        positions: Positions,
        like_BTC: Tensor,
        valid_BT: Tensor | None = None,
        *,
        backend: str | None = None,
        return_attentions: bool = False,
    ) -> Plan:
        """Word order and mask, prepared once for all layers."""
        order = self.encoding.prepare(positions, dtype=like_BTC.dtype, device=like_BTC.device)
        mask = Visibility(positions, positions, valid_BS=None if valid_BT is None else valid_BT.bool())
        call = describe(
            order,
            mask,
            batch=like_BTC.shape[0],
            heads=self.heads,
            queries=positions.length,
            keys=positions.length,
            head_dim=self.head_dim,
            dtype=working_dtype(like_BTC),  # of queries, keys and values
            device=like_BTC.device,
            dropout=self.attention_dropout if self.training else 0.0,
            return_weights=return_attentions,
        )
        return make_plan(order, mask, call, backend=backend, layers=len(self.layers))

    def _run(self, x_BTC: Tensor, plan: Plan, return_all_hidden: bool, return_attentions: bool) -> EncoderOutput:
        all_hidden: list[Tensor] = []
        attentions: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, EncoderLayer)
            all_hidden.append(x_BTC)
            if return_attentions:
                attentions.append(layer.attention_weights(x_BTC, plan.layer(index)))
            if self.gradient_checkpointing and self.training:
                # Re-entrant checkpointing would walk the shared bias's graph once per layer and fail.
                checkpointed = cast("Any", checkpoint).checkpoint
                x_BTC = checkpointed(layer, x_BTC, plan.layer(index), use_reentrant=False)
            else:
                x_BTC = layer(x_BTC, plan.layer(index))
        hidden = self.final_norm(x_BTC)
        return EncoderOutput(
            hidden,
            (*all_hidden, hidden) if return_all_hidden else None,
            tuple(attentions) if return_attentions else None,
        )
