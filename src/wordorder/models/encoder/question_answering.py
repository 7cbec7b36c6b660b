"""The encoder as a model that finds answers in a text."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Unpack

from torch import Tensor, nn
from transformers.utils.generic import can_return_tuple

from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.encoder.document import read_document
from wordorder.models.encoder.model import WordOrderEncoderModel, WordOrderEncoderPreTrainedModel
from wordorder.models.outputs import WordOrderQuestionAnsweringOutput, body_outputs
from wordorder.models.pretrained import MemoryInputs


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
        num_items_in_batch: Tensor | int | None = None,
        **inputs: Unpack[MemoryInputs],
    ) -> WordOrderQuestionAnsweringOutput:
        """Find a span, in texts of any length where the model has a memory (see `read_document`).

        The other arguments are those of `WordOrderEncoderModel.forward`.

        Args:
            start_positions: long (B,), column of the answer's first token; beyond the text = no answer here.
            end_positions: long (B,), column of its last token.
            num_items_in_batch: texts over which the loss is a mean, if more than this batch's.
            **inputs: memory, sequence_ids, output_attentions, output_hidden_states, token_type_ids.
        """
        output = read_document(self.model, input_ids, attention_mask, position_ids, inputs_embeds, **inputs)
        start_BT, end_BT = self.span(output.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_of(start_BT, end_BT, start_positions, end_positions, num_items_in_batch=num_items_in_batch)
        return WordOrderQuestionAnsweringOutput(
            loss=loss, start_logits=start_BT, end_logits=end_BT, **body_outputs(output)
        )
