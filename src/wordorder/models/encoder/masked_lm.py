"""The encoder as a masked language model."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Unpack, cast

from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils.generic import can_return_tuple

from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.encoder.document import read_document
from wordorder.models.encoder.model import EncoderInputs, WordOrderEncoderModel, WordOrderEncoderPreTrainedModel
from wordorder.models.outputs import WordOrderMaskedLMOutput
from wordorder.networks.options import norm_layer


class MaskedLMHead(nn.Module):
    """``norm(act(W x)) E^T + b``, E being the token embeddings where they are tied (BERT, TUPE: act is gelu)."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__()
        self.activation = config.head_act
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = norm_layer(config.norm, config.hidden_size, config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., C) -> (..., V)."""
        acts = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}
        return self.decoder(self.norm(acts[self.activation](self.dense(hidden))))


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
        num_items_in_batch: Tensor | int | None = None,
        **inputs: Unpack[EncoderInputs],
    ) -> WordOrderMaskedLMOutput:
        """Predict tokens, in texts of any length where the model has a memory (see `read_document`).

        The other arguments are those of `WordOrderEncoderModel.forward`.

        Args:
            input_ids: long (B, T).
            attention_mask: (B, T), 1 = token.
            position_ids: long (B or 1, T).
            inputs_embeds: instead of input_ids, (B, T, C).
            labels: long (B, T), the token to predict, -100 where none is; the loss is the mean of the negative
                log-likelihood (nats) over labelled tokens.
            num_items_in_batch: labelled tokens over which the loss is a mean, if more than this batch's.
            **inputs: memory, sequence_ids, output_attentions, output_hidden_states, token_type_ids.
        """
        output = read_document(self.model, input_ids, attention_mask, position_ids, inputs_embeds, **inputs)
        hidden = cast(Tensor, output.last_hidden_state)
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
            loss=loss,
            logits=logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
            memory=output.memory,
        )
