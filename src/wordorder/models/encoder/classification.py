"""The encoder as a classifier of texts and of tokens."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Unpack, cast

import torch
from torch import Tensor, nn
from transformers.utils.generic import can_return_tuple

from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.encoder.document import pool_document, read_document
from wordorder.models.encoder.model import EncoderInputs, WordOrderEncoderModel, WordOrderEncoderPreTrainedModel
from wordorder.models.outputs import WordOrderSequenceClassifierOutput, WordOrderTokenClassifierOutput


class WordOrderEncoderForSequenceClassification(WordOrderEncoderPreTrainedModel):
    """The encoder with a text classification head on the first token: dense, tanh, dropout, linear (as BERT, TUPE).

    Without ``classifier_dense``: dropout, linear. With a memory the head reads what ``document_pooling`` makes of all
    tokens of all segments.
    """

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = WordOrderEncoderModel(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size) if config.classifier_dense else None
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
        num_items_in_batch: Tensor | int | None = None,
        **inputs: Unpack[EncoderInputs],
    ) -> WordOrderSequenceClassifierOutput:
        """Classify texts, of any length where the model has a memory (see `read_document`).

        The other arguments are those of `WordOrderEncoderModel.forward`.

        Args:
            input_ids: long (B, T).
            attention_mask: (B, T), 1 = token.
            position_ids: long (B or 1, T).
            inputs_embeds: instead of input_ids, (B, T, C).
            labels: (B,) class numbers (or numbers, for regression with one label).
            num_items_in_batch: texts over which the loss is a mean, if more than this batch's.
            **inputs: memory, sequence_ids, output_attentions, output_hidden_states, token_type_ids.
        """
        output = read_document(self.model, input_ids, attention_mask, position_ids, inputs_embeds, **inputs)
        hidden_BTC = cast(Tensor, output.last_hidden_state)
        text_BC = pool_document(hidden_BTC, attention_mask, self.config.document_pooling or "first")
        pooled_BC = text_BC if self.dense is None else torch.tanh(self.dense(text_BC))
        logits = self.classifier(self.dropout(pooled_BC))
        loss = None
        if labels is not None:
            loss = self.loss_of_texts(logits, labels, num_items_in_batch)
        return WordOrderSequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
            memory=output.memory,
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
        num_items_in_batch: Tensor | int | None = None,
        **inputs: Unpack[EncoderInputs],
    ) -> WordOrderTokenClassifierOutput:
        """Classify tokens, in texts of any length where the model has a memory (see `read_document`).

        The other arguments are those of `WordOrderEncoderModel.forward`.

        Args:
            input_ids: long (B, T).
            attention_mask: (B, T), 1 = token.
            position_ids: long (B or 1, T).
            inputs_embeds: instead of input_ids, (B, T, C).
            labels: long (B, T) class numbers, -100 where none is.
            num_items_in_batch: labelled tokens over which the loss is a mean, if more than this batch's.
            **inputs: memory, sequence_ids, output_attentions, output_hidden_states, token_type_ids.
        """
        output = read_document(self.model, input_ids, attention_mask, position_ids, inputs_embeds, **inputs)
        logits = self.classifier(self.dropout(output.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_of(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
        return WordOrderTokenClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
            memory=output.memory,
        )


def _classifier_dropout(config: WordOrderEncoderConfig) -> nn.Dropout:
    chosen = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if chosen is None else chosen)
