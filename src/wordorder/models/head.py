"""The base of heads that learn from labels: one forward, around the prediction of each head."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any, Unpack, cast

import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput, can_return_tuple

from wordorder.models.outputs import body_outputs
from wordorder.models.pretrained import MemoryInputs, WordOrderPreTrainedModel


class LabelledHead(WordOrderPreTrainedModel):
    """A head on a model of texts that learns from ``labels``.

    A class of heads says what it predicts (`predict`), which output that goes into (`output_class`), and what its
    labels are (its docstring).
    """

    output_class: type[ModelOutput]

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **inputs: Unpack[MemoryInputs],
    ) -> ModelOutput:
        """Read texts and predict.

        The other arguments are those of the forward of the model without a head, ``model``.

        Args:
            labels: what should be predicted, see the class; with them the output has a loss.
            num_items_in_batch: labels over which the loss is a mean, if more than this batch's.
            **inputs: output_attentions, output_hidden_states, token_type_ids; of an encoder also memory, sequence_ids.
        """
        output = self.read(input_ids, attention_mask, position_ids, inputs_embeds, **inputs)
        logits, loss = self.predict(output, attention_mask, labels, num_items_in_batch)
        return self.output_class(loss=loss, logits=logits, **body_outputs(output))

    def read(self, *texts: Tensor | None, **inputs: Any) -> Any:
        """Return the output of the model without a head."""
        return self.model(*texts, **inputs)

    def predict(
        self,
        output: object,
        attention_mask: Tensor | None,
        labels: Tensor | None,
        num_items_in_batch: Tensor | int | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits, and the loss where there are labels.

        Args:
            output: of the model without a head.
            attention_mask: (B, T), 1 = token; None = no padding.
            labels: what should be predicted; None = no loss is wanted.
            num_items_in_batch: labels over which the loss is a mean, if more than this batch's.
        """
        raise NotImplementedError

    def one_class_each(self, labels: Tensor) -> bool:
        """Tell whether every text has one class of several, by the configuration or else by the labels' dtype."""
        if self.config.problem_type is not None:
            return self.config.problem_type == "single_label_classification"
        return self.config.num_labels > 1 and labels.dtype in (torch.int64, torch.int32)

    def loss_of_texts(self, logits: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
        """Return the loss of one answer per text: a mean over ``num_items_in_batch`` labels, or over this batch's."""
        mean_of_batch = num_items_in_batch is not None and not self.one_class_each(labels)
        loss = self.loss_of(
            labels=labels, pooled_logits=logits, config=self.config, num_items_in_batch=num_items_in_batch
        )
        # transformers counts classes over several batches, but not numbers or several labels per text
        return loss * (labels.numel() / cast("int", num_items_in_batch)) if mean_of_batch else loss


def classifier_dropout(config: Any) -> nn.Dropout:
    """Return the dropout before a classifier's output layer.

    Args:
        config: of a model with the field ``classifier_dropout``; where that is None, hidden_dropout_prob counts.
    """
    chosen = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if chosen is None else chosen)
