"""The encoder as a classifier of texts and of tokens."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Unpack

import torch
from torch import Tensor, nn
from transformers.utils.generic import can_return_tuple

from wordorder.models.encoder import EncoderInputs, WordOrderEncoderModel, WordOrderEncoderPreTrainedModel
from wordorder.models.encoder_configuration import WordOrderEncoderConfig
from wordorder.models.outputs import WordOrderSequenceClassifierOutput, WordOrderTokenClassifierOutput


class WordOrderEncoderForSequenceClassification(WordOrderEncoderPreTrainedModel):
    """The encoder with a text classification head on the first token: dense, tanh, dropout, linear (as BERT, TUPE).

    Without ``classifier_dense``: dropout, linear.
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
        """Classify texts.

        The other arguments are those of `WordOrderEncoderModel.forward`.

        Args:
            input_ids: long (B, T).
            attention_mask: (B, T), 1 = token.
            position_ids: long (B or 1, T).
            inputs_embeds: instead of input_ids, (B, T, C).
            labels: (B,) class numbers (or numbers, for regression with one label).
            num_items_in_batch: texts over which the loss is a mean, if more than this batch's.
            **inputs: memory, sequence_ids, output_attentions, output_hidden_states.
        """
        output = self.model(input_ids, attention_mask, position_ids, inputs_embeds, **inputs)
        hidden_BTC = output.last_hidden_state
        first_B = 0 if attention_mask is None else attention_mask.int().argmax(dim=1)
        first_BC = hidden_BTC[torch.arange(hidden_BTC.shape[0], device=hidden_BTC.device), first_B]
        pooled_BC = first_BC if self.dense is None else torch.tanh(self.dense(first_BC))
        logits = self.classifier(self.dropout(pooled_BC))
        loss = None
        if labels is not None:
            loss = self.loss_of_texts(logits, labels, num_items_in_batch)
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
        num_items_in_batch: Tensor | int | None = None,
        **inputs: Unpack[EncoderInputs],
    ) -> WordOrderTokenClassifierOutput:
        """Classify tokens.

        The other arguments are those of `WordOrderEncoderModel.forward`.

        Args:
            input_ids: long (B, T).
            attention_mask: (B, T), 1 = token.
            position_ids: long (B or 1, T).
            inputs_embeds: instead of input_ids, (B, T, C).
            labels: long (B, T) class numbers, -100 where none is.
            num_items_in_batch: labelled tokens over which the loss is a mean, if more than this batch's.
            **inputs: memory, sequence_ids, output_attentions, output_hidden_states.
        """
        output = self.model(input_ids, attention_mask, position_ids, inputs_embeds, **inputs)
        logits = self.classifier(self.dropout(output.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_of(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
        return WordOrderTokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=output.hidden_states, attentions=output.attentions
        )


def _classifier_dropout(config: WordOrderEncoderConfig) -> nn.Dropout:
    chosen = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if chosen is None else chosen)
