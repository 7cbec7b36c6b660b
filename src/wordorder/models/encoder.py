"""The encoder as a Hugging Face model, without a head."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any, TypedDict, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.generic import can_return_tuple

from wordorder.models.configuration import WordOrderEncoderConfig
from wordorder.models.layout import Layout, layout_of
from wordorder.models.outputs import WordOrderModelOutput
from wordorder.networks import Encoder, initialise_module


class EncoderInputs(TypedDict, total=False):
    """What every head passes on to `WordOrderEncoderModel.forward`, which says what each means."""

    memory: Any
    sequence_ids: Tensor | None
    output_attentions: bool | None
    output_hidden_states: bool | None


class WordOrderEncoderPreTrainedModel(PreTrainedModel):
    """What all encoder models share with transformers: initial weights, capabilities, the embedding table."""

    config: WordOrderEncoderConfig
    config_class = WordOrderEncoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["EncoderLayer"]  # noqa: RUF012  transformers declares these as plain class attributes
    _supports_sdpa = True
    _supports_flash_attn = False
    _supports_flex_attn = False
    _can_compile_fullgraph = True
    accepts_loss_kwargs = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        initialise_module(module, std=self.config.initializer_range)

    def loss_of(self, *args: Any, **kwargs: Any) -> Tensor:
        """Transformers' loss for this head, chosen by the class's name; its declared type is a union of all losses."""
        return cast("Any", self).loss_function(*args, **kwargs)


class WordOrderEncoderModel(WordOrderEncoderPreTrainedModel):
    """The encoder without a head.

    Args:
        config: sizes, block style and encoding.
    """

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.encoder = Encoder(
            config.vocab_size,
            width=config.hidden_size,
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            key_value_heads=config.num_key_value_heads,
            feedforward=config.intermediate_size,
            max_positions=config.max_position_embeddings,
            encoding=config.encoding,
            encoding_options=config.encoding_options,
            norm=config.norm,
            norm_placement=config.norm_placement,
            norm_eps=config.layer_norm_eps,
            embedding_norm=config.embedding_norm,
            activation=config.hidden_act,
            dropout=config.hidden_dropout_prob,
            attention_dropout=config.attention_probs_dropout_prob,
            padding_idx=config.pad_token_id,
        )
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
    ) -> WordOrderModelOutput:
        """Encode a batch.

        Args:
            input_ids: long (B, T).
            attention_mask: (B, T), 1 = token, 0 = padding, on either side; leave it out where nothing is padded.
            position_ids: long (B or 1, T); see `layout_of`, which also says when they mean packed sequences.
            inputs_embeds: instead of input_ids, (B, T, C).
            memory: refused; this network has none.
            sequence_ids: long (B, T), which packed sequence a token belongs to.
            output_attentions: also return attention weights (slow); default: the configuration's.
            output_hidden_states: also return every layer's output; default: the configuration's.

        Raises:
            ValueError: both or neither of input_ids and inputs_embeds, a wrong shape, a position beyond a learned
                table, or a memory.
        """
        if memory is not None:
            raise ValueError("memory was given, but this model has memory='none'")
        given = input_ids if input_ids is not None else inputs_embeds
        if given is None or (input_ids is not None and inputs_embeds is not None):
            raise ValueError("pass exactly one of input_ids and inputs_embeds")
        layout = layout_of((given.shape[0], given.shape[1]), attention_mask, position_ids, sequence_ids)
        wants_attentions = bool(self.config.output_attentions if output_attentions is None else output_attentions)
        wants_hidden = bool(self.config.output_hidden_states if output_hidden_states is None else output_hidden_states)
        eager = getattr(self.config, "_attn_implementation", None) == "eager"
        encoded = self.encoder(
            None if input_ids is None else layout.turn(input_ids),
            layout.positions,
            embeddings_BTC=None if inputs_embeds is None else layout.turn(inputs_embeds),
            valid_BT=layout.valid_BT,
            backend="reference" if eager else None,
            return_all_hidden=wants_hidden,
            return_attentions=wants_attentions,
        )
        return WordOrderModelOutput(
            last_hidden_state=layout.turn_back(encoded.hidden),
            hidden_states=_all_back(encoded.all_hidden, layout, (1,)),
            attentions=_all_back(encoded.attentions, layout, (2, 3)),
        )


def _all_back(tensors: tuple[Tensor, ...] | None, layout: Layout, axes: tuple[int, ...]) -> tuple[Any, ...] | None:
    return None if tensors is None else tuple(layout.turn_back(tensor, axes=axes) for tensor in tensors)
