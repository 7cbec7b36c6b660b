"""The decoder as a language model."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from functools import wraps
from typing import Any, Unpack, cast

from torch import Tensor, nn
from transformers import Cache, GenerationMixin
from transformers.utils.generic import can_return_tuple

from wordorder.models.decoder import DecoderInputs, WordOrderDecoderModel, WordOrderDecoderPreTrainedModel
from wordorder.models.decoder_configuration import WordOrderDecoderConfig
from wordorder.models.next_token import next_token_loss
from wordorder.models.outputs import WordOrderCausalLMOutput


class WordOrderDecoderForCausalLM(WordOrderDecoderPreTrainedModel, GenerationMixin):
    """The decoder with an output layer ``E x``, E being the token embeddings where they are tied."""

    _tied_weights_keys = {"lm_head.weight": "model.decoder.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: WordOrderDecoderConfig) -> None:
        super().__init__(config)
        self.model = WordOrderDecoderModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """The output layer."""
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output layer."""
        self.lm_head = cast("nn.Linear", new_embeddings)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        **inputs: Unpack[DecoderInputs],
    ) -> WordOrderCausalLMOutput:
        """Predict each next token.

        The other arguments are those of `WordOrderDecoderModel.forward`.

        Args:
            input_ids: long (B, T).
            attention_mask: (B, T), 1 = token.
            position_ids: long (B or 1, T).
            past_key_values: a cache, which is added to.
            inputs_embeds: instead of input_ids, (B, T, C).
            labels: long (B, T), usually ``input_ids``: label t + 1 is what token t should give (the shift is done
                here); -100 where there is none. The loss is the mean of the negative log-likelihood (nats) over
                labelled tokens.
            use_cache: begin a cache and return it.
            logits_to_keep: compute the last so many logits, or those at these columns; 0 = all.
            num_items_in_batch: labelled tokens over which the loss is a mean, if more than this batch's.
            **inputs: memory, sequence_ids, output_attentions, output_hidden_states.
        """
        output = self.model(
            input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache, **inputs
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(output.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = next_token_loss(
                logits[:, :-1],
                labels[:, 1:],
                smoothing=self.config.label_smoothing if self.training else 0.0,
                num_items_in_batch=num_items_in_batch,
            )
        return WordOrderCausalLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=output.past_key_values,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Write on, as transformers' ``generate``.

        Args:
            *args: see there.
            **kwargs: see there; but no position_ids: positions are counted from the first token of each row.

        Raises:
            ValueError: position_ids are given.
        """
        if kwargs.get("position_ids") is not None:
            raise ValueError("generate counts positions from attention_mask; leave position_ids out")
        return cast("Any", super()).generate(*args, **kwargs)

    @wraps(cast("Any", GenerationMixin).prepare_inputs_for_generation)  # generate looks at its signature
    def prepare_inputs_for_generation(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """As transformers does, but without positions, which the mask already tells (and tells as typed ones)."""
        inputs = cast("Any", super()).prepare_inputs_for_generation(*args, **kwargs)
        inputs.pop("position_ids", None)
        return inputs
