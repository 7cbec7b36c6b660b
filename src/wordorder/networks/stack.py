"""What encoders and decoders have in common: token embeddings, word order, layers, and a norm at the end."""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, cast

from torch import Tensor, nn
from torch.utils import checkpoint

from wordorder.attention import Plan, describe, make_plan
from wordorder.encodings import Order, ReplacesEmbedding, Use, build_encoding
from wordorder.networks.blocks import Blocks
from wordorder.ops import Contiguous, Positions, Visibility, as_positions
from wordorder.ops.precision import working_dtype
from wordorder.ops.token_ids import check_embeddings, check_token_ids


class StackSizes(TypedDict):
    """Arguments of `Stack` that an encoder's and a decoder's constructor hand on as they are."""

    layers: int
    max_positions: int
    encoding: str
    encoding_options: Mapping[str, Any] | None
    embedding_norm: bool | None
    padding_idx: int | None


class Stack(nn.Module):
    """Token embeddings, an encoding, and layers made of `Blocks`; encoder and decoder say what a layer does.

    Args:
        vocabulary: number of token ids, V; positive.
        blocks: sizes and style of the layers.
        layer: makes a layer of the blocks.
        layers: number of layers; positive.
        use: "encoder" or "decoder", for the encoding's defaults.
        max_positions: longest text in tokens, for encodings with a table.
        encoding: a name of the catalogue, or several joined by "+".
        encoding_options: options of the encoding; see `build_encoding`.
        embedding_norm: normalise the embeddings; None = with post-norm only.
        padding_idx: token id whose embedding is 0 and stays 0 (unless tied to an output layer).

    Raises:
        BadInput: unknown encoding or option.
        ValueError: a size is out of range.
    """

    def __init__(
        self,
        vocabulary: int,
        blocks: Blocks,
        *,
        layer: Callable[[Blocks], nn.Module],
        layers: int,
        use: Use,
        max_positions: int,
        encoding: str,
        encoding_options: Mapping[str, Any] | None,
        embedding_norm: bool | None,
        padding_idx: int | None,
    ) -> None:
        super().__init__()
        for name, value in (("vocabulary", vocabulary), ("layers", layers)):
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        self.blocks, self.heads, self.head_dim = blocks, blocks.heads, blocks.head_dim
        composition = build_encoding(
            encoding,
            width=blocks.channels,
            heads=blocks.heads,
            layers=layers,
            max_positions=max_positions,
            use=use,
            options=encoding_options,
            vocabulary=vocabulary,
            padding_idx=padding_idx,
            complex_valued=blocks.channels != blocks.width,
        )
        self.embedding = composition.replacement or nn.Embedding(vocabulary, blocks.width, padding_idx=padding_idx)
        self.encoding = composition
        normalise_embeddings = not blocks.pre if embedding_norm is None else embedding_norm
        self.embedding_norm = blocks.norm_layer() if normalise_embeddings else nn.Identity()
        self.dropout = blocks.dropout_layer()
        self.layers = nn.ModuleList(layer(blocks) for _ in range(layers))
        self.final_norm = blocks.norm_layer() if blocks.pre else nn.Identity()
        self.read_out = blocks.read_out()
        self.gradient_checkpointing = False

    def embed(
        self, token_ids_BT: Tensor | None, embeddings_BTC: Tensor | None, positions: Positions | Tensor | None
    ) -> tuple[Tensor, Positions]:
        """What the first layer reads, (B, T, channels), and the positions as typed values.

        Args:
            token_ids_BT: long (B, T).
            embeddings_BTC: instead of token ids, (B, T, C).
            positions: where the tokens stand; None = 0 .. T - 1 for every example.

        Raises:
            ValueError: neither or both of ids and embeddings are given, or ids are not integers (B, T) or outside the
                vocabulary (looked at on the CPU only).
        """
        if (token_ids_BT is None) == (embeddings_BTC is None):
            raise ValueError("pass exactly one of token_ids and embeddings")
        if token_ids_BT is not None:
            check_token_ids(token_ids_BT, self.embedding.num_embeddings)
        if embeddings_BTC is not None:
            check_embeddings(embeddings_BTC, self.blocks.channels)
        given = token_ids_BT if embeddings_BTC is None else embeddings_BTC
        assert given is not None
        where = Contiguous(given.shape[1]) if positions is None else as_positions(positions)
        if embeddings_BTC is not None:
            x_BTC = embeddings_BTC
        elif isinstance(self.embedding, ReplacesEmbedding):
            x_BTC = self.embedding(token_ids_BT, where)
        else:
            x_BTC = self.embedding(token_ids_BT)
        return self.dropout(self.embedding_norm(self.encoding.embed(x_BTC, where))), where

    def plan_self_attention(
        self,
        positions: Positions,
        like_BTC: Tensor,
        *,
        key_positions: Positions | None = None,
        valid_BS: Tensor | None = None,
        causal: bool = False,
        backend: str | None = None,
        return_attentions: bool = False,
    ) -> Plan:
        """Word order and mask, prepared once for all layers.

        Args:
            positions: of the queries.
            like_BTC: the input of the first layer.
            key_positions: of all keys, where a cache holds earlier ones; None = those of the queries.
            valid_BS: bool, False where a key is padding; None = no padding.
            causal: a query sees only keys at its own position or before it.
            backend: of attention, as in `choose_backend`; None chooses.
            return_attentions: attention weights are wanted.
        """
        keys = positions if key_positions is None else key_positions
        order = self.encoding.prepare(positions, key_positions, dtype=like_BTC.dtype, device=like_BTC.device)
        mask = Visibility(positions, keys, causal, None if valid_BS is None else valid_BS.bool())
        return self.plan_attention(order, mask, like_BTC, backend=backend, return_attentions=return_attentions)

    def plan_attention(
        self,
        order: Order,
        mask: Visibility,
        like_BTC: Tensor,
        *,
        backend: str | None = None,
        return_attentions: bool = False,
    ) -> Plan:
        """Order and mask in the form that the backend wants, for all layers; arguments as in `plan_self_attention`."""
        call = describe(
            order,
            mask,
            batch=like_BTC.shape[0],
            heads=self.heads,
            queries=mask.query.length,
            keys=mask.key.length,
            head_dim=self.head_dim,
            dtype=working_dtype(like_BTC),  # of queries, keys and values
            device=like_BTC.device,
            dropout=self.blocks.attention_dropout if self.training else 0.0,
            return_weights=return_attentions,
        )
        return make_plan(order, mask, call, backend=backend or self.blocks.backend, layers=len(self.layers))

    def run_layer(self, layer: nn.Module, *arguments: Any) -> Tensor:
        """A layer's output, computed again in the backward pass where gradient checkpointing is on."""
        if self.gradient_checkpointing and self.training:
            # Re-entrant checkpointing would walk the shared bias's graph once per layer and fail.
            checkpointed = cast("Any", checkpoint).checkpoint
            return checkpointed(layer, *arguments, use_reentrant=False)
        return layer(*arguments)

    def finish(self, x_BTC: Tensor) -> Tensor:
        """What heads read, (B, T, C): the last layer's output after the final norm, and real."""
        return self.read_out(self.final_norm(x_BTC))
