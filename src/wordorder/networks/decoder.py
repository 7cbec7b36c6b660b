"""The Transformer decoder, with any encoding of the catalogue, alone or beside an encoder."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.attention import Source, plan_attention
from wordorder.encodings import Terms
from wordorder.errors import BadInput
from wordorder.networks.cache import Cache
from wordorder.networks.initialisation import initialise
from wordorder.networks.layer import DecoderLayer
from wordorder.networks.options import TransformerKeywords, TransformerOptions
from wordorder.networks.stack import Stack, check_left_padding, one_input, reads_positions
from wordorder.ops import (
    Contiguous,
    Mask,
    Positions,
    PositionsLike,
    as_positions,
    check_key_padding,
    check_positions_fit,
)
from wordorder.ops.execution import is_plain

if TYPE_CHECKING:
    from wordorder.memory import MemoryState


@dataclass(frozen=True)
class DecoderOutput:
    """The output of a decoder.

    Args:
        hidden: the last layer's output, after the final norm, (B, T, C).
        all_hidden: embeddings and every layer's output, if asked for; the last one is ``hidden``.
        attentions: every layer's attention weights (B, H, T, S), if asked for.
        cross_attentions: every layer's weights on the source, (B, H, T, source tokens), if asked for.
        memory: what the segment left, for the next one; None where the network has no memory.
        memory_loss: in training, what weights of the memory learn from; add it to your loss. None = it has none.
        logits: of the next token at every place, (B, T, V), where the decoder has an output head.
    """

    hidden: Tensor
    all_hidden: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None
    memory: "MemoryState | None" = None
    memory_loss: Tensor | None = None
    logits: Tensor | None = None


class Decoder(Stack):
    """A causal Transformer over token ids, plain torch: a language model, or the half of a translator that writes.

    >>> import torch, wordorder
    >>> decoder = wordorder.Decoder(1000, width=64, layers=2, heads=4, encoding="rope")
    >>> decoder(torch.randint(1000, (2, 16))).hidden.shape
    torch.Size([2, 16, 64])

    A token sees itself and what stands before it, by position: so positions must grow within a text.

    Self-attention carries the word order, prepared once per forward and shared by all layers. Cross-attention carries
    none, as in the original Transformer, in T5 and in models with RoPE: positions of two texts have no common axis,
    and each text's own encoding has already written its order into the states.

    Args:
        vocabulary: number of token ids, V; positive.
        options: sizes and style as one value, in place of keywords.
        cross_attention: let every layer also attend to the states of an encoder; not with a memory.
        embedding: in place of a table of all tokens, such as an ``nn.Embedding`` of vectors that
            are trained already; its weights are left as they are. It has ``num_embeddings`` V and ``embedding_dim``
            width.
        tied_head: also return logits, ``hidden E^T`` with the table of token embeddings E (Press and Wolf 2017,
            https://arxiv.org/abs/1608.05859); needs a table of (V, width), and no weights of its own.
        **keywords: fields of `TransformerOptions`: width=256, layers=4, heads=4, encoding="tupe-r", max_positions=512,
            dropout=0.1, memory=None and so on.

    Raises:
        BadInput: unknown encoding or option, or an encoding that decoders cannot have.
        TypeError: an unknown keyword.
        ValueError: a size is out of range, a memory comes with cross_attention, or tied_head without a table that fits.
    """

    def __init__(
        self,
        vocabulary: int,
        options: TransformerOptions | None = None,
        *,
        cross_attention: bool = False,
        embedding: nn.Module | None = None,
        tied_head: bool = False,
        **keywords: Unpack[TransformerKeywords],
    ) -> None:
        options = TransformerOptions.of(type(self).__name__, options, keywords)
        if cross_attention and options.memory is not None:
            raise ValueError("memory and cross_attention cannot be combined; pass memory=None or cross_attention=False")
        layer = partial(DecoderLayer, cross=cross_attention)
        super().__init__(vocabulary, options, layer=layer, use="decoder", embedding=embedding)
        self.cross_attention, self.tied_head = cross_attention, tied_head
        table = getattr(self.embedding, "weight", None)
        if tied_head and (table is None or table.shape != (vocabulary, options.width)):
            found = "none" if table is None else f"one of {tuple(table.shape)}"
            raise ValueError(
                f"tied_head needs a table of token embeddings of (vocabulary, width) = {(vocabulary, options.width)},"
                f" and encoding {options.encoding!r} or embedding has {found}; add an output layer of your own"
            )
        initialise(self, leave=embedding)

    def forward(
        self,
        input_ids: Tensor | None = None,
        positions: PositionsLike | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        key_positions: PositionsLike | None = None,
        key_padding_mask: Tensor | None = None,
        source: Tensor | None = None,
        source_positions: PositionsLike | None = None,
        source_padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        memory: "MemoryState | None" = None,
        backend: str | None = None,
        return_all_hidden: bool = False,
        return_attentions: bool = False,
    ) -> DecoderOutput:
        """Read token ids, or embeddings in their place.

        A decoder with a memory reads them as one segment, however many they are, and returns what the next segment
        wants as ``memory``. For reading a segment in several steps see `open_segment` and `read_segment`.

        Args:
            input_ids: long (B, T); with a cache, the tokens that come after those that it holds.
            positions: where the tokens stand; typed, or a long tensor (B, T), growing within a text; default: 0, 1, ..,
                or on from the cache. For rows padded on the left pass ``Contiguous(T, offset)`` with one (negative)
                offset per example.
            inputs_embeds: instead of input_ids, (B, T, C).
            key_positions: beside positions, where all tokens stand that the cache holds and then these, if they are not
                `Contiguous`, as where padding stands between tokens.
            key_padding_mask: bool (B, S), True = padding, for all tokens that the cache holds and then these; None =
                none of them is padding, so that with a cache it must be passed at every step. With a memory (B, T), of
                these tokens alone, padded on the right.
            source: the states of an encoder, (B, tokens, channels); may be left out once a cache has seen them.
            source_positions: of the source; only packed ones matter: text i of a row then asks source i of that row.
            source_padding_mask: bool (B, tokens of the source), True = padding; None = no padding.
            cache: of earlier steps; it is added to. Not in a decoder with a memory.
            memory: what the segment before left; None = the beginning of a text.
            backend: of attention, as in `choose_backend`; None chooses.
            return_all_hidden: also return every layer's output.
            return_attentions: also return every layer's attention weights; slow.

        Raises:
            BadInput: key_padding_mask is not bool (B, S), or source_padding_mask not bool of the source's shape; or
                padding on the left without positions, as in `Encoder.forward`.
            ValueError: neither or both of input_ids and inputs_embeds are given, ids are not integers (B, T) or outside
                the vocabulary (looked at on the CPU only), a position is beyond a learned table, a source is given to
                a decoder without cross-attention or none to one with it, positions with a cache are not `Contiguous`
                and come without key_positions, or the other way round, or a cache is to be filled under gradient
                checkpointing; a memory is given to a decoder that has none, or positions or a cache to one that has;
                padding as in `read_segment`.
        """
        if self.memory is not None or memory is not None:
            segment_output = self.read_whole(
                input_ids,
                inputs_embeds,
                memory,
                {"positions": positions, "key_positions": key_positions, "cache": cache, "source": source},
                key_padding_mask=key_padding_mask,
                backend=backend,
                return_all_hidden=return_all_hidden,
                return_attentions=return_attentions,
            )
            hidden, all_hidden, attentions, memory, loss = segment_output
            logits = self._logits(hidden)
            return DecoderOutput(hidden, all_hidden, attentions, memory=memory, memory_loss=loss, logits=logits)
        if key_positions is not None and positions is None:
            raise BadInput("key_positions says where all keys stand: pass positions too, where these tokens stand")
        check_left_padding(self.encoding, positions, key_padding_mask)
        ids_or_embeds = one_input(input_ids, inputs_embeds)
        if positions is None and cache is not None and ids_or_embeds.dim() > 1:
            positions = Contiguous(ids_or_embeds.shape[1], cache.length)
        x_BTC, where = self.embed(input_ids, inputs_embeds, positions)
        if cache is not None and self.checkpointed:
            raise ValueError("gradient checkpointing runs layers twice and would fill the cache twice; pass cache=None")
        plan = self.plan(
            where,
            x_BTC,
            key_positions=_all_positions(where, cache, key_positions, x_BTC.shape[0]),
            key_padding_mask=key_padding_mask,
            causal=True,
            backend=backend,
            return_attentions=return_attentions,
        )
        asked = None
        if self._asks(source, cache, x_BTC.shape[0]):
            key = None if source_positions is None else as_positions(source_positions)
            asked = self.plan_cross_attention(
                where,
                x_BTC,
                source,
                key_positions=key,
                source_padding_mask=source_padding_mask,
                held=0 if cache is None else cache.source_length,
                backend=backend,
                return_attentions=return_attentions,
            )
        hidden, all_hidden, attentions, cross_attentions = self.run_layers(
            x_BTC, plan, asked, cache, return_all_hidden=return_all_hidden, return_attentions=return_attentions
        )
        logits = self._logits(hidden)
        return DecoderOutput(hidden, all_hidden, attentions, cross_attentions=cross_attentions, logits=logits)

    def plan_cross_attention(
        self,
        positions: Positions,
        like_BTC: Tensor,
        source: Tensor | None,
        *,
        key_positions: Positions | None = None,
        source_padding_mask: Tensor | None = None,
        held: int = 0,
        backend: str | None = None,
        return_attentions: bool = False,
    ) -> Source:
        """Prepare the source and its mask for cross-attention, once for all layers; there is no word order in it.

        Args:
            source: the states of an encoder; not read where a cache holds their keys.
            key_positions: of the source; None = nothing is packed.
            held: how many tokens of the source a cache holds keys of.
        """
        tokens = held if source is None or held else source.shape[1]
        key = Contiguous(tokens) if key_positions is None else key_positions
        check_key_padding(
            "source_padding_mask", source_padding_mask, like_BTC.shape[0], key.length, device=like_BTC.device
        )
        tokens_BS = None if source_padding_mask is None else ~source_padding_mask
        mask = Mask(positions, key, tokens_BS=tokens_BS)
        call = self._call(like_BTC, positions.length, key.length, return_attentions=return_attentions)
        plan = plan_attention(Terms(self.head_dim**-0.5), mask, call, backend=self._backend(backend))
        return Source(None if held else source, plan)

    def _asks(self, source: Tensor | None, cache: Cache | None, batch: int) -> bool:
        """Check the source that was given, and return whether there is one to attend to."""
        if not self.cross_attention:
            if source is not None:
                raise ValueError("source was given to a decoder without cross-attention; pass cross_attention=True")
            return False
        if source is None and (cache is None or not cache.source_length):
            raise ValueError("source must be given to a decoder with cross-attention, or a cache that has seen it")
        channels = self.options.channels
        if source is not None and (source.dim() != 3 or source.shape[::2] != (batch, channels)):
            raise ValueError(f"source must be ({batch}, tokens, {channels}), got {tuple(source.shape)}")
        return True

    def _logits(self, hidden_BTC: Tensor) -> Tensor | None:
        return F.linear(hidden_BTC, self._output_table(hidden_BTC)) if self.tied_head else None

    def _output_table(self, hidden_BTC: Tensor) -> Tensor:
        """Return the table of token embeddings (V, C), from a call of the module where a tool has changed it."""
        if is_plain(self.embedding, nn.Embedding):
            return self.embedding.weight
        if not reads_positions(self.embedding):
            words = getattr(self.embedding, "num_embeddings", self.vocabulary)
            return self.embedding(torch.arange(words, device=hidden_BTC.device))
        if self.embedding.weight.is_meta:
            raise BadInput(
                "tied_head reads the table of a complex-order embedding, which is offloaded: leave it in place"
            )
        return self.embedding.weight


def _all_positions(
    positions: Positions, cache: Cache | None, key_positions: PositionsLike | None, batch: int
) -> Positions | None:
    """Return the positions of all keys, those in the cache first; None where they are the queries' positions."""
    cached = 0 if cache is None else cache.length
    if key_positions is not None:
        keys = as_positions(key_positions)
        check_positions_fit("key_positions", keys, batch, cached + positions.length)
        return keys
    if cache is None:
        return None
    if not isinstance(positions, Contiguous):  # in the first step too: the next one takes its positions for such
        raise ValueError(
            f"positions with a cache must be Contiguous, got {type(positions).__name__}; pass key_positions too, where"
            " all keys stand"
        )
    return None if not cached else Contiguous(cached + positions.length, positions.offset - cached)
