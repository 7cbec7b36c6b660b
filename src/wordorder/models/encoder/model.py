"""The encoder as a Hugging Face model, without a head."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any, TypedDict, cast

from torch import Tensor, nn
from transformers.utils.generic import can_return_tuple

from wordorder.models.config.configuration import WordOrderConfig
from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.decoder.segment import read_segment
from wordorder.models.layout import all_back, check_token_types, layout_of, one_input
from wordorder.models.network import build_encoder
from wordorder.models.outputs import WordOrderModelOutput
from wordorder.models.pretrained import WordOrderPreTrainedModel
from wordorder.networks import Encoder


class EncoderInputs(TypedDict, total=False):
    """What every head passes on to `WordOrderEncoderModel.forward`, which says what each means."""

    memory: Any
    sequence_ids: Tensor | None
    output_attentions: bool | None
    output_hidden_states: bool | None
    token_type_ids: Tensor | None


class WordOrderEncoderPreTrainedModel(WordOrderPreTrainedModel):
    """What all encoder models share."""

    config: WordOrderEncoderConfig
    config_class = WordOrderEncoderConfig
    _no_split_modules = ["EncoderLayer"]  # noqa: RUF012  transformers declares these as plain class attributes


class WordOrderEncoderModel(WordOrderEncoderPreTrainedModel):
    """The encoder without a head.

    Args:
        config: sizes, block style and encoding.
    """

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.encoder = build_encoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The token embeddings."""
        return self.encoder.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embeddings."""
        self.encoder.embedding = cast("nn.Embedding", value)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        memory: Any = None,
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
        if self.config.memory != "none":
            read = read_segment(
                self.encoder,
                memory,
                input_ids,
                attention_mask,
                inputs_embeds,
                {"position_ids": position_ids, "sequence_ids": sequence_ids},
                backend=backend_of(self.config),
                output_attentions=wants(self.config.output_attentions, output_attentions),
                output_hidden_states=wants(self.config.output_hidden_states, output_hidden_states),
            )
            return WordOrderModelOutput(
                last_hidden_state=read.hidden,
                hidden_states=cast("Any", read.all_hidden),
                attentions=cast("Any", read.attentions),
                memory=read.memory,
            )
        if memory is not None:
            raise ValueError("memory was given, but this model has memory='none'")
        return encode_batch(
            self.encoder,
            self.config,
            input_ids,
            attention_mask,
            position_ids,
            inputs_embeds,
            sequence_ids,
            output_attentions=wants(self.config.output_attentions, output_attentions),
            output_hidden_states=wants(self.config.output_hidden_states, output_hidden_states),
        )


def encode_batch(
    encoder: Encoder,
    config: WordOrderConfig,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    sequence_ids: Tensor | None,
    *,
    output_attentions: bool = False,
    output_hidden_states: bool = False,
) -> WordOrderModelOutput:
    """An encoder's output, everything in the caller's columns.

    Args:
        encoder: reads the batch.
        config: says which backend of attention.
        input_ids: as in `WordOrderEncoderModel.forward`, and so the next four.
        attention_mask: see there.
        position_ids: see there.
        inputs_embeds: see there.
        sequence_ids: see there.
        output_attentions: also give attention weights.
        output_hidden_states: also give every layer's output.

    Raises:
        ValueError: as in `WordOrderEncoderModel.forward`.
    """
    given = one_input(input_ids, inputs_embeds)
    layout = layout_of((given.shape[0], given.shape[1]), attention_mask, position_ids, sequence_ids)
    encoded = encoder(
        None if input_ids is None else layout.turn(input_ids),
        layout.positions,
        inputs_embeds=None if inputs_embeds is None else layout.turn(inputs_embeds),
        key_padding_mask=layout.key_padding_mask,
        backend=backend_of(config),
        return_all_hidden=output_hidden_states,
        return_attentions=output_attentions,
    )
    return WordOrderModelOutput(
        last_hidden_state=layout.turn_back(encoded.hidden),
        hidden_states=all_back(encoded.all_hidden, layout, (1,)),
        attentions=all_back(encoded.attentions, layout, (2, 3)),
    )


def backend_of(config: WordOrderConfig) -> str | None:
    """The backend of attention that transformers' ``attn_implementation`` asks for; None = the fastest."""
    return "reference" if getattr(config, "_attn_implementation", None) == "eager" else None


def wants(configured: Any, asked: bool | None) -> bool:
    """Whether an extra output is wanted: what the call says, else what the configuration says."""
    return bool(configured if asked is None else asked)
