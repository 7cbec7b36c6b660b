"""The encoder as Hugging Face models: the base model and its heads."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.utils.generic import can_return_tuple

from wordorder.models.configuration import WordOrderEncoderConfig
from wordorder.models.layout import Layout, layout_of
from wordorder.models.outputs import (
    WordOrderMaskedLMOutput,
    WordOrderModelOutput,
    WordOrderQuestionAnsweringOutput,
    WordOrderSequenceClassifierOutput,
    WordOrderTokenClassifierOutput,
)
from wordorder.networks import Encoder, initialise_module
from wordorder.networks.blocks import norm_layer


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


class MaskedLMHead(nn.Module):
    """``norm(gelu(W x)) E^T + b``, E being the token embeddings where they are tied (BERT, TUPE)."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = norm_layer(config.norm, config.hidden_size, config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., C) -> (..., V)."""
        return self.decoder(self.norm(F.gelu(self.dense(hidden))))


class WordOrderEncoderForMaskedLM(WordOrderEncoderPreTrainedModel):
    """The encoder with a masked language modelling head."""

    _tied_weights_keys = {"head.decoder.weight": "model.encoder.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.model = WordOrderEncoderModel(config)
        self.head = MaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """The output layer."""
        return self.head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output layer."""
        self.head.decoder = cast("nn.Linear", new_embeddings)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        memory: Any = None,
        sequence_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> WordOrderMaskedLMOutput:
        """Predict tokens.

        Args:
            input_ids: see `WordOrderEncoderModel.forward`, as for all arguments not named here.
            attention_mask: see there.
            position_ids: see there.
            inputs_embeds: see there.
            labels: long (B, T), the token to predict, -100 where none is; the loss is the mean of the negative
                log-likelihood (nats) over labelled tokens.
            memory: see there.
            sequence_ids: see there.
            output_attentions: see there.
            output_hidden_states: see there.
            num_items_in_batch: labelled tokens over which the loss is a mean, if more than this batch's.
        """
        output = self.model(
            input_ids, attention_mask, position_ids, inputs_embeds, memory, sequence_ids,
            output_attentions, output_hidden_states,
        )  # fmt: skip
        hidden = output.last_hidden_state
        if labels is not None and self.config.sparse_prediction:
            labelled = labels != -100
            hidden, labels = hidden[labelled], labels[labelled]
        logits = self.head(hidden)
        loss = None
        if labels is not None:
            loss = self.loss_of(
                logits, labels, vocab_size=self.config.vocab_size, num_items_in_batch=num_items_in_batch
            )
        return WordOrderMaskedLMOutput(
            loss=loss, logits=logits, hidden_states=output.hidden_states, attentions=output.attentions
        )


class WordOrderEncoderForSequenceClassification(WordOrderEncoderPreTrainedModel):
    """The encoder with a text classification head on the first token: dense, tanh, dropout, linear (as BERT, TUPE)."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = WordOrderEncoderModel(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels or 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        memory: Any = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> WordOrderSequenceClassifierOutput:
        """Classify texts.

        Args:
            input_ids: see `WordOrderEncoderModel.forward`, as for all arguments not named here.
            attention_mask: see there.
            position_ids: see there.
            inputs_embeds: see there.
            labels: (B,) class numbers (or numbers, for regression with one label).
            memory: see there.
            output_attentions: see there.
            output_hidden_states: see there.
            num_items_in_batch: texts over which the loss is a mean, if more than this batch's.
        """
        output = self.model(
            input_ids, attention_mask, position_ids, inputs_embeds, memory, None,
            output_attentions, output_hidden_states,
        )  # fmt: skip
        hidden_BTC = output.last_hidden_state
        first_B = 0 if attention_mask is None else attention_mask.int().argmax(dim=1)
        first_BC = hidden_BTC[torch.arange(hidden_BTC.shape[0], device=hidden_BTC.device), first_B]
        logits = self.classifier(self.dropout(torch.tanh(self.dense(first_BC))))
        loss = None
        if labels is not None:
            loss = self.loss_of(
                labels=labels, pooled_logits=logits, config=self.config, num_items_in_batch=num_items_in_batch
            )
        return WordOrderSequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=output.hidden_states, attentions=output.attentions
        )


class WordOrderEncoderForTokenClassification(WordOrderEncoderPreTrainedModel):
    """The encoder with a classification head on every token."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = WordOrderEncoderModel(config)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels or 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        memory: Any = None,
        sequence_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> WordOrderTokenClassifierOutput:
        """Classify tokens.

        Args:
            input_ids: see `WordOrderEncoderModel.forward`, as for all arguments not named here.
            attention_mask: see there.
            position_ids: see there.
            inputs_embeds: see there.
            labels: long (B, T) class numbers, -100 where none is.
            memory: see there.
            sequence_ids: see there.
            output_attentions: see there.
            output_hidden_states: see there.
            num_items_in_batch: labelled tokens over which the loss is a mean, if more than this batch's.
        """
        output = self.model(
            input_ids, attention_mask, position_ids, inputs_embeds, memory, sequence_ids,
            output_attentions, output_hidden_states,
        )  # fmt: skip
        logits = self.classifier(self.dropout(output.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_of(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
        return WordOrderTokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=output.hidden_states, attentions=output.attentions
        )


class WordOrderEncoderForQuestionAnswering(WordOrderEncoderPreTrainedModel):
    """The encoder with a head that marks the first and last token of an answer."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.model = WordOrderEncoderModel(config)
        self.span = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        memory: Any = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> WordOrderQuestionAnsweringOutput:
        """Find a span.

        Args:
            input_ids: see `WordOrderEncoderModel.forward`, as for all arguments not named here.
            attention_mask: see there.
            position_ids: see there.
            inputs_embeds: see there.
            start_positions: long (B,), column of the answer's first token; beyond the text = no answer here.
            end_positions: long (B,), column of its last token.
            memory: see there.
            output_attentions: see there.
            output_hidden_states: see there.
        """
        output = self.model(
            input_ids, attention_mask, position_ids, inputs_embeds, memory, None,
            output_attentions, output_hidden_states,
        )  # fmt: skip
        start_BT, end_BT = self.span(output.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_of(start_BT, end_BT, start_positions, end_positions)
        return WordOrderQuestionAnsweringOutput(
            loss=loss,
            start_logits=start_BT,
            end_logits=end_BT,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )


def _classifier_dropout(config: WordOrderEncoderConfig) -> nn.Dropout:
    chosen = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if chosen is None else chosen)


def _all_back(tensors: tuple[Tensor, ...] | None, layout: Layout, axes: tuple[int, ...]) -> tuple[Any, ...] | None:
    return None if tensors is None else tuple(layout.turn_back(tensor, axes=axes) for tensor in tensors)
