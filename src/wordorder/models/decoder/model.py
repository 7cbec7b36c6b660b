"""The decoder as a Hugging Face model, without a head."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import replace
from typing import Any, TypedDict, cast

from torch import Tensor, nn
from transformers import Cache
from transformers.utils.generic import can_return_tuple

from wordorder.models.config.configuration import WordOrderConfig
from wordorder.models.config.decoder import WordOrderDecoderConfig
from wordorder.models.decoder.cache import BoundCache, new_cache
from wordorder.models.decoder.segment import read_segment
from wordorder.models.decoder.segment_cache import SegmentCache, read_cached
from wordorder.models.encoder.model import backend_of, wants
from wordorder.models.layout import all_back, cached_layout, check_token_types, layout_of, one_input, tokens_of
from wordorder.models.network import build_decoder, input_parts
from wordorder.models.outputs import WordOrderDecoderOutput
from wordorder.models.pretrained import WordOrderPreTrainedModel
from wordorder.networks import Decoder, DecoderOutput
from wordorder.ops import Positions


class DecoderInputs(TypedDict, total=False):
    """What heads pass on to `WordOrderDecoderModel.forward`, which says what each means."""

    memory: Any
    sequence_ids: Tensor | None
    output_attentions: bool | None
    output_hidden_states: bool | None
    token_type_ids: Tensor | None


class WordOrderDecoderPreTrainedModel(WordOrderPreTrainedModel):
    """What all decoder models share."""

    config: WordOrderDecoderConfig
    config_class = WordOrderDecoderConfig
    _no_split_modules = ["DecoderLayer"]  # noqa: RUF012  transformers declares these as plain class attributes


class WordOrderDecoderModel(WordOrderDecoderPreTrainedModel):
    """The decoder without a head.

    Args:
        config: sizes, block style and encoding.
    """

    def __init__(self, config: WordOrderDecoderConfig) -> None:
        super().__init__(config)
        self.decoder = build_decoder(config, layers=config.num_hidden_layers, **input_parts(config))
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The token embeddings."""
        return self.decoder.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embeddings."""
        self.decoder.embedding = cast("nn.Embedding", value)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        memory: Any = None,
        sequence_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        token_type_ids: Tensor | None = None,
    ) -> WordOrderDecoderOutput:
        """Read a batch.

        Args:
            input_ids: long (B, T); with a cache, the tokens that come after those that it holds.
            attention_mask: (B, T), or (B, all tokens so far) with a cache; 1 = token, 0 = padding, on either side
                (left with a cache); leave it out where nothing is padded.
            position_ids: long (B or 1, T); see `layout_of`, which also says when they mean packed sequences, and
                `cached_layout` for those with a cache.
            past_key_values: a cache, which is added to; for a model with a memory a `SegmentCache`, and no memory.
            inputs_embeds: instead of input_ids, (B, T, C).
            use_cache: begin a cache and return it; default: only where one was given.
            memory: what the segment before left, see `wordorder.memory`; None = the beginning of a text. A model with
                a memory reads what it is given as one segment; ``attention_mask`` (B, T) is then of this segment. With
                a cache it cuts what it is given every ``segment_length`` tokens.
            sequence_ids: long (B, T), which packed sequence a token belongs to; not with a cache.
            output_attentions: also return attention weights (slow); default: the configuration's.
            output_hidden_states: also return every layer's output; default: the configuration's.
            token_type_ids: of a tokenizer, long and all 0: there are no segment embeddings.

        Raises:
            ValueError: both or neither of input_ids and inputs_embeds, a wrong shape, a position beyond a learned
                table, packed sequences or positions with gaps with a cache; a memory given to a model without one, or
                positions, packed sequences or a cache of keys to one with a memory, or a cache beside a memory;
                token_type_ids other than 0.
        """
        check_token_types(token_type_ids, input_ids, inputs_embeds)
        if self.config.memory != "none":
            return self._read_segment(
                self._cache_of(past_key_values, memory) if past_key_values is not None or use_cache else None,
                memory,
                input_ids,
                attention_mask,
                inputs_embeds,
                {"position_ids": position_ids, "sequence_ids": sequence_ids},
                output_attentions=wants(self.config.output_attentions, output_attentions),
                output_hidden_states=wants(self.config.output_hidden_states, output_hidden_states),
            )
        if memory is not None:
            raise ValueError("memory was given, but this model has memory='none'")
        cache = past_key_values if past_key_values is not None else new_cache() if use_cache else None
        read = read_batch(
            self.decoder,
            self.config,
            input_ids,
            attention_mask,
            position_ids,
            inputs_embeds,
            sequence_ids,
            cache,
            output_attentions=wants(self.config.output_attentions, output_attentions),
            output_hidden_states=wants(self.config.output_hidden_states, output_hidden_states),
        )
        return WordOrderDecoderOutput(
            last_hidden_state=read.hidden,
            past_key_values=cache,
            hidden_states=cast("Any", read.all_hidden),
            attentions=cast("Any", read.attentions),
        )

    def _cache_of(self, cache: Cache | None, memory: Any) -> Cache:
        """The cache that was given, or one that begins with the memory that was given."""
        if cache is not None and memory is not None:
            raise ValueError("pass memory or past_key_values, not both: a SegmentCache holds its own memory")
        return SegmentCache(self.config, memory=memory) if cache is None else cache

    def _read_segment(self, cache: Cache | None, memory: Any, *given: Any, **wanted: bool) -> WordOrderDecoderOutput:
        """One segment beside a memory, or the next tokens with a cache; arguments as in `segment.read_segment`."""
        wanted_too: Any = {"backend": backend_of(self.config), **wanted}
        if cache is None:
            read = read_segment(self.decoder, memory, *given, **wanted_too)
        else:
            read = read_cached(self.decoder, cache, *given, **wanted_too)
        return WordOrderDecoderOutput(
            last_hidden_state=read.hidden,
            past_key_values=cache,
            hidden_states=cast("Any", read.all_hidden),
            attentions=cast("Any", read.attentions),
            memory=read.memory,
        )


def read_batch(
    decoder: Decoder,
    config: WordOrderConfig,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    sequence_ids: Tensor | None,
    cache: Cache | None,
    *,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_positions: Positions | None = None,
    output_attentions: bool = False,
    output_hidden_states: bool = False,
) -> DecoderOutput:
    """A decoder's output, everything in the caller's columns.

    Args:
        decoder: reads the batch.
        config: says which backend of attention.
        input_ids: as in `WordOrderDecoderModel.forward`, and so the next four.
        attention_mask: see there.
        position_ids: see there.
        inputs_embeds: see there.
        sequence_ids: see there.
        cache: is added to.
        source: the states of an encoder, (B, S, channels).
        source_mask: (B, S), 1 = token of the source.
        source_positions: of the source where it is packed.
        output_attentions: also give attention weights.
        output_hidden_states: also give every layer's output.

    Raises:
        ValueError: as in `WordOrderDecoderModel.forward`.
    """
    given = one_input(input_ids, inputs_embeds)
    shape = given.shape[0], given.shape[1]
    if cache is None:
        bound, layout = None, layout_of(shape, attention_mask, position_ids, sequence_ids)
    else:
        if sequence_ids is not None:
            raise ValueError("sequence_ids say that sequences are packed, which a cache cannot hold; pass one of them")
        bound = BoundCache(cache, source=decoder.cross_attention)
        layout = cached_layout(shape, bound.length, attention_mask, position_ids)
    output = decoder(
        None if input_ids is None else layout.turn(input_ids),
        layout.positions,
        inputs_embeds=None if inputs_embeds is None else layout.turn(inputs_embeds),
        key_padding_mask=layout.key_padding_mask,
        source=source,
        source_positions=source_positions,
        source_padding_mask=None if source_mask is None else ~tokens_of(source_mask),
        cache=bound,
        backend=backend_of(config),
        return_all_hidden=output_hidden_states,
        return_attentions=output_attentions,
    )
    return replace(
        output,
        hidden=layout.turn_back(output.hidden),
        all_hidden=all_back(output.all_hidden, layout, (1,)),
        attentions=all_back(output.attentions, layout, (2, 3)),
        cross_attentions=all_back(output.cross_attentions, layout, (2,)),
    )
