"""The encoder as a masked language model."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.encoder.document import EncoderHead
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
        """Return the logits (..., V) of states (..., C)."""
        acts = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}
        return self.decoder(self.norm(acts[self.activation](self.dense(hidden))))


class WordOrderEncoderForMaskedLM(EncoderHead):
    """The encoder with a masked language modelling head.

    Labels are long (B, T), the token to predict, -100 where there is none; the loss is the mean of the negative
    log-likelihood (nats) over labelled tokens.
    """

    output_class = WordOrderMaskedLMOutput
    _tied_weights_keys = {"head.decoder.weight": "model.encoder.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.head = MaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """Return the output layer."""
        return self.head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output layer."""
        self.head.decoder = cast("nn.Linear", new_embeddings)

    def predict(
        self, output: Any, attention_mask: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits (B, T, V), or those of labelled tokens alone, and the loss where there are labels."""
        hidden = output.last_hidden_state
        if labels is not None and self.config.sparse_prediction:
            labelled = labels != -100
            hidden, labels = hidden[labelled], labels[labelled]
        logits = self.head(hidden)
        if labels is None:
            return logits, None
        vocab_size = self.config.vocab_size
        return logits, self.loss_of(logits, labels, vocab_size=vocab_size, num_items_in_batch=num_items_in_batch)
