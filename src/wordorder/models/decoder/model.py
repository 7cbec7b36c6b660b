"""The decoder without a head as a Hugging Face model."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import replace
from typing import Unpack

from torch import Tensor
from transformers import Cache
from transformers.utils.generic import can_return_tuple

from wordorder.memory import MemoryState
from wordorder.models.config.decoder import WordOrderDecoderConfig
from wordorder.models.decoder.cache import BoundCache, new_cache
from wordorder.models.decoder.segment_cache import read_next_tokens, segment_cache
from wordorder.models.layout import cached_layout, check_token_types, layout_of, one_input, tokens_of
from wordorder.models.network import build_decoder, input_parts
from wordorder.models.outputs import WordOrderDecoderOutput, network_outputs
from wordorder.models.pretrained import ForwardOptions, WordOrderPreTrainedModel, forward_options
from wordorder.models.segment import read_whole_segment, refuse_memory, refuse_positions
from wordorder.networks import Decoder, DecoderOutput
from wordorder.ops import Positions


class WordOrderDecoderPreTrainedModel(WordOrderPreTrainedModel):
    """The base of the decoder and its head."""

    config: WordOrderDecoderConfig
    config_class = WordOrderDecoderConfig
    _no_split_modules = ["DecoderLayer"]  # noqa: RUF012  transformers declares these as plain class attributes


class WordOrderDecoderModel(WordOrderDecoderPreTrainedModel):
    """The decoder without a head."""

    def __init__(self, config: WordOrderDecoderConfig) -> None:
        super().__init__(config)
        self.decoder = build_decoder(config, layers=config.num_hidden_layers, **input_parts(config))
        self.post_init()

    def token_reader(self) -> Decoder:
        """Return the decoder, which holds the token embeddings."""
        return self.decoder

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        memory: MemoryState | None = None,
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
        options = forward_options(self.config, output_attentions, output_hidden_states)
        if self.config.memory == "none":
            refuse_memory(memory)
            cache = past_key_values if past_key_values is not None else new_cache() if use_cache else None
            read = decode_batch(
                self.decoder, input_ids, attention_mask, position_ids, inputs_embeds, sequence_ids, cache, **options
            )
        elif past_key_values is not None or use_cache:
            cache = segment_cache(self.config, past_key_values, memory)
            refuse_positions(position_ids=position_ids, sequence_ids=sequence_ids)
            read = read_next_tokens(self.decoder, cache, input_ids, attention_mask, inputs_embeds, **options)
        else:
            cache = None
            refuse_positions(position_ids=position_ids, sequence_ids=sequence_ids)
            read = read_whole_segment(self.decoder, memory, input_ids, attention_mask, inputs_embeds, **options)
        return WordOrderDecoderOutput(past_key_values=cache, **network_outputs(read))


def decode_batch(
    decoder: Decoder,
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
    **options: Unpack[ForwardOptions],
) -> DecoderOutput:
    """Read whole texts, or packed ones, or the next tokens with a cache, with a decoder that has no memory.

    Args:
        attention_mask: (B, T), 1 = token, 0 = padding, on either side; with a cache (B, all tokens so far), on the
            left.
        cache: holds the keys of earlier tokens and takes those of the new ones; None = there are no earlier tokens.
        source: the states of an encoder, (B, S, channels).
        source_positions: of the source where it is packed.

    Returns:
        everything in the caller's columns.

    Raises:
        ValueError: both or neither of input_ids and inputs_embeds, a wrong shape, a position beyond a learned table, or
            packed sequences or positions with gaps with a cache.
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
        **options,
    )
    return replace(layout.output_back(output), cross_attentions=layout.all_back(output.cross_attentions, (2,)))
