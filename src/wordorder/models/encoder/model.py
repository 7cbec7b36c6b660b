"""The encoder without a head as a Hugging Face model."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Unpack

from torch import Tensor
from transformers.utils.generic import can_return_tuple

from wordorder.memory import MemoryState
from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.layout import check_token_types, layout_of, one_input
from wordorder.models.network import build_encoder
from wordorder.models.outputs import WordOrderModelOutput, network_outputs
from wordorder.models.pretrained import ForwardOptions, WordOrderPreTrainedModel, forward_options
from wordorder.models.segment import read_whole_segment, refuse_memory, refuse_positions
from wordorder.networks import Encoder, EncoderOutput


class WordOrderEncoderPreTrainedModel(WordOrderPreTrainedModel):
    """The base of the encoder and its heads."""

    config: WordOrderEncoderConfig
    config_class = WordOrderEncoderConfig
    _no_split_modules = ["EncoderLayer"]  # noqa: RUF012  transformers declares these as plain class attributes


class WordOrderEncoderModel(WordOrderEncoderPreTrainedModel):
    """The encoder without a head."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.encoder = build_encoder(config)
        self.post_init()

    def token_reader(self) -> Encoder:
        """Return the encoder, which holds the token embeddings."""
        return self.encoder

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        memory: MemoryState | None = None,
        sequence_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        token_type_ids: Tensor | None = None,
    ) -> WordOrderModelOutput:
        """Encode a batch.

        Args:
            input_ids: long (B, T).
            attention_mask: (B, T), 1 = token, 0 = padding, on either side; leave it out where nothing is padded.
            position_ids: long (B or 1, T); see `layout_of`, which also says when they mean packed sequences.
            inputs_embeds: instead of input_ids, (B, T, C).
            memory: what the segment before left, see `wordorder.memory`; None = the beginning of a text. A model with
                a memory reads what it is given as one segment.
            sequence_ids: long (B, T), which packed sequence a token belongs to.
            output_attentions: also return attention weights (slow); default: the configuration's.
            output_hidden_states: also return every layer's output; default: the configuration's.
            token_type_ids: of a tokenizer, long and all 0: there are no segment embeddings.

        Raises:
            ValueError: both or neither of input_ids and inputs_embeds, a wrong shape, a position beyond a learned
                table; a memory given to a model without one, or positions or packed sequences to one with a memory;
                token_type_ids other than 0.
        """
        check_token_types(token_type_ids, input_ids, inputs_embeds)
        options = forward_options(self.config, output_attentions, output_hidden_states)
        if self.config.memory == "none":
            refuse_memory(memory)
            read = encode_batch(
                self.encoder, input_ids, attention_mask, position_ids, inputs_embeds, sequence_ids, **options
            )
        else:
            refuse_positions(position_ids=position_ids, sequence_ids=sequence_ids)
            read = read_whole_segment(self.encoder, memory, input_ids, attention_mask, inputs_embeds, **options)
        return WordOrderModelOutput(**network_outputs(read))


def encode_batch(
    encoder: Encoder,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    sequence_ids: Tensor | None,
    **options: Unpack[ForwardOptions],
) -> EncoderOutput:
    """Read whole texts, or packed ones, with an encoder that has no memory.

    Returns:
        everything in the caller's columns.

    Raises:
        ValueError: both or neither of input_ids and inputs_embeds, a wrong shape, or a position beyond a learned table.
    """
    given = one_input(input_ids, inputs_embeds)
    layout = layout_of((given.shape[0], given.shape[1]), attention_mask, position_ids, sequence_ids)
    encoded = encoder(
        None if input_ids is None else layout.turn(input_ids),
        layout.positions,
        inputs_embeds=None if inputs_embeds is None else layout.turn(inputs_embeds),
        key_padding_mask=layout.key_padding_mask,
        **options,
    )
    return layout.output_back(encoded)
