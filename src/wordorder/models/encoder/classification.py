"""The encoder as a classifier of texts and of tokens."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

import torch
from torch import Tensor, nn

from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.encoder.document import EncoderHead, pool_document
from wordorder.models.head import classifier_dropout
from wordorder.models.outputs import WordOrderSequenceClassifierOutput, WordOrderTokenClassifierOutput


class WordOrderEncoderForSequenceClassification(EncoderHead):
    """The encoder with a text classification head on the first token: dense, tanh, dropout, linear (as BERT, TUPE).

    Without ``classifier_dense``: dropout, linear. With a memory the head reads what ``document_pooling`` makes of all
    tokens of all segments. Labels are class numbers (B,), or numbers, for regression with one label.
    """

    output_class = WordOrderSequenceClassifierOutput

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.dense = nn.Linear(config.hidden_size, config.hidden_size) if config.classifier_dense else None
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels or 1)
        self.post_init()

    def predict(
        self, output: Any, attention_mask: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits (B, classes), and the loss where there are labels."""
        text_BC = pool_document(output.last_hidden_state, attention_mask, self.config.document_pooling or "first")
        pooled_BC = text_BC if self.dense is None else torch.tanh(self.dense(text_BC))
        logits = self.classifier(self.dropout(pooled_BC))
        return logits, None if labels is None else self.loss_of_texts(logits, labels, num_items_in_batch)


class WordOrderEncoderForTokenClassification(EncoderHead):
    """The encoder with a classification head on every token.

    Labels are long (B, T), class numbers, -100 where there is none.
    """

    output_class = WordOrderTokenClassifierOutput

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels or 1)
        self.post_init()

    def predict(
        self, output: Any, attention_mask: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits (B, T, classes), and the loss where there are labels."""
        logits = self.classifier(self.dropout(output.last_hidden_state))
        if labels is None:
            return logits, None
        return logits, self.loss_of(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
