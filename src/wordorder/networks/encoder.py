"""The Transformer encoder, with any encoding of the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from torch import Tensor

from wordorder.attention import HybridPlan, Plan
from wordorder.memory import Memory, MemoryState, SegmentRecurrence
from wordorder.networks.blocks import Activation, Blocks, Norm, NormPlacement
from wordorder.networks.initialisation import initialise
from wordorder.networks.layer import EncoderLayer
from wordorder.networks.stack import Stack, StackSizes
from wordorder.ops import Positions
from wordorder.ops.checkpointing import run_layer


@dataclass(frozen=True)
class EncoderOutput:
    """What an encoder returns.

    Args:
        hidden: the last layer's output, after the final norm, (B, T, C).
        all_hidden: embeddings and every layer's output, if asked for; the last one is ``hidden``.
        attentions: every layer's attention weights (B, H, T, T), if asked for; with a memory (B, H, T, M + T).
        memory: what the segment left, for the next one; None where the network has no memory.
    """

    hidden: Tensor
    all_hidden: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    memory: MemoryState | None = None


class Encoder(Stack):
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
        encoding: a name of the catalogue, several joined by "+", or a pattern over the layers; see `build_encoding`.
        encoding_options: options of the encoding; see `build_encoding`.
        norm: "layer" (2018) or "rms" (modern).
        norm_placement: "post" (2018) or "pre" (modern; trains without warm-up troubles, hence the default).
        norm_eps: added to the variance; 1e-5.
        embedding_norm: normalise the embeddings; default: with post-norm only.
        activation: "gelu" (exact), "relu", "silu" or "swiglu".
        dropout: on embeddings and on each sublayer's output.
        attention_dropout: on attention weights.
        padding_idx: token id whose embedding is 0 and stays 0 (unless tied to an output layer).
        memory: of earlier segments of a long document, `SegmentRecurrence` (without same_length) or `LookAheadMemory`.

    Raises:
        BadInput: unknown encoding or option.
        ValueError: a size is out of range, or a memory has same_length.
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
        memory: Memory | None = None,
    ) -> None:
        blocks = Blocks(
            width=width,
            heads=heads,
            key_value_heads=key_value_heads,
            feedforward=feedforward,
            norm=norm,
            norm_placement=norm_placement,
            norm_eps=norm_eps,
            activation=activation,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
        self.assemble(
            vocabulary,
            blocks,
            layers=layers,
            max_positions=max_positions,
            encoding=encoding,
            encoding_options=encoding_options,
            embedding_norm=embedding_norm,
            padding_idx=padding_idx,
            memory=memory,
        )

    def assemble(self, vocabulary: int, blocks: Blocks, **sizes: Unpack[StackSizes]) -> None:
        """Make the encoder of these blocks: what constructors call, whatever the blocks are made of.

        Args:
            vocabulary: number of token ids.
            blocks: sizes and style of the layers.
            **sizes: as in `Stack`.

        Raises:
            ValueError: a memory has same_length.
        """
        memory = sizes["memory"]
        if isinstance(memory, SegmentRecurrence) and memory.same_length:
            raise ValueError(
                "same_length is for decoders, whose tokens see what stands before them; leave it out in an encoder"
            )
        Stack.__init__(self, vocabulary, blocks, layer=EncoderLayer, use="encoder", **sizes)
        initialise(self)

    def forward(
        self,
        token_ids_BT: Tensor | None = None,
        positions: Positions | Tensor | None = None,
        *,
        embeddings_BTC: Tensor | None = None,
        valid_BT: Tensor | None = None,
        memory: MemoryState | None = None,
        backend: str | None = None,
        return_all_hidden: bool = False,
        return_attentions: bool = False,
    ) -> EncoderOutput:
        """Encode token ids, or embeddings in their place.

        An encoder with a memory reads them as one segment of a longer text: they see each other and the slots, the
        slots of a look-ahead memory see all of them, and what the next segment wants is returned as ``memory``.

        Args:
            token_ids_BT: long (B, T).
            positions: where the tokens stand; typed, or a long tensor (B, T); default 0 .. T - 1 for every example.
                For rows padded on the left pass ``Contiguous(T, offset)`` with one (negative) offset per example.
            embeddings_BTC: instead of token ids, (B, T, C).
            valid_BT: bool, False where a token is padding (with a memory, on the right); None = no padding.
            memory: what the segment before left; None = the beginning of a text.
            backend: of attention, as in `choose_backend`; None chooses.
            return_all_hidden: also return every layer's output.
            return_attentions: also return every layer's attention weights; slow.

        Raises:
            ValueError: neither or both of ids and embeddings are given, ids are not integers (B, T) or outside the
                vocabulary (looked at on the CPU only), a position is beyond a learned table, a memory is given to an
                encoder that has none, or positions to one that has; padding as in `read_segment`.
        """
        if self.memory is not None or memory is not None:
            read = self.read_whole(
                token_ids_BT,
                embeddings_BTC,
                memory,
                {"positions": positions},
                valid_BT=valid_BT,
                backend=backend,
                return_all_hidden=return_all_hidden,
                return_attentions=return_attentions,
            )
            memory = read.segment.close()
            return EncoderOutput(read.hidden, read.all_hidden or None, read.attentions or None, memory)
        x_BTC, where = self.embed(token_ids_BT, embeddings_BTC, positions)
        plan = self.plan(where, x_BTC, valid_BS=valid_BT, backend=backend, return_attentions=return_attentions)
        return self._run(x_BTC, plan, return_all_hidden, return_attentions)

    def _run(
        self, x_BTC: Tensor, plan: Plan | HybridPlan, return_all_hidden: bool, return_attentions: bool
    ) -> EncoderOutput:
        all_hidden: list[Tensor] = []
        attentions: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, EncoderLayer)
            all_hidden.append(x_BTC)
            if return_attentions:
                attentions.append(layer.attention_weights(x_BTC, plan.layer(index))[0])
            x_BTC = run_layer(layer, x_BTC, plan.layer(index), checkpointed=self._checkpointed)
        hidden = self.finish(x_BTC)
        return EncoderOutput(
            hidden,
            (*all_hidden, hidden) if return_all_hidden else None,
            tuple(attentions) if return_attentions else None,
        )
