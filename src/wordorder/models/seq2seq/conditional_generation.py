"""Encoder and decoder as a translator."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any, Unpack, cast

from torch import Tensor, nn
from transformers import Cache, GenerationMixin
from transformers.utils.generic import can_return_tuple

from wordorder.models.config.seq2seq import WordOrderSeq2SeqConfig
from wordorder.models.decoder.next_token import kept_columns, next_token_loss, shifted_right
from wordorder.models.layout import take_token_types
from wordorder.models.outputs import WordOrderSeq2SeqLMOutput, body_outputs
from wordorder.models.pretrained import ExtraInputs
from wordorder.models.seq2seq.model import WordOrderSeq2SeqModel, WordOrderSeq2SeqPreTrainedModel


class Seq2SeqInputs(ExtraInputs, total=False):
    """The arguments that the head hands on to `WordOrderSeq2SeqModel.forward`, which describes them."""

    decoder_attention_mask: Tensor | None
    position_ids: Tensor | None
    decoder_position_ids: Tensor | None
    encoder_outputs: Any
    past_key_values: Cache | None
    inputs_embeds: Tensor | None
    decoder_inputs_embeds: Tensor | None
    use_cache: bool | None
    decoder_sequence_ids: Tensor | None


class WordOrderSeq2SeqForConditionalGeneration(WordOrderSeq2SeqPreTrainedModel, GenerationMixin):
    """Encoder and decoder with an output layer ``E x``, E being the target's token embeddings where they are tied."""

    def __init__(self, config: WordOrderSeq2SeqConfig) -> None:
        super().__init__(config)
        self.model = WordOrderSeq2SeqModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        half = "encoder" if config.share_embeddings else "decoder"
        table = f"model.seq2seq.{half}.embedding.weight"
        self._tied_weights_keys = {"lm_head.weight": table} if config.tie_word_embeddings else {}
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        **inputs: Unpack[Seq2SeqInputs],
    ) -> WordOrderSeq2SeqLMOutput:
        """Predict each next token of the target.

        Args:
            decoder_input_ids: the target as the decoder reads it, long (B, T); default: the labels, shifted right
                behind the start token.
            labels: long (B, T), the target, -100 where it is padded (on the right). The loss is the mean of the
                negative log-likelihood (nats) over labelled tokens.
            logits_to_keep: compute the last so many logits, or those at these columns; 0 = all.
            num_items_in_batch: labelled tokens over which the loss is a mean, if more than this batch's.
            **inputs: the other arguments of `WordOrderSeq2SeqModel.forward`.

        Raises:
            ValueError: labels are to be shifted, and the configuration has no start token.
        """
        if labels is not None and decoder_input_ids is None and inputs.get("decoder_inputs_embeds") is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        output = self.model(input_ids, attention_mask, decoder_input_ids, **inputs)
        logits = self.lm_head(output.last_hidden_state[:, kept_columns(logits_to_keep)])
        loss = None
        if labels is not None:
            smoothing = self.config.label_smoothing if self.training else 0.0
            loss = next_token_loss(logits, labels, smoothing=smoothing, num_items_in_batch=num_items_in_batch)
        return WordOrderSeq2SeqLMOutput(loss=loss, logits=logits, **body_outputs(output))

    def generate(self, *args: object, **kwargs: Any) -> Any:
        """Generate as transformers' ``generate`` does; a tokenizer's ``token_type_ids`` are taken where they are all 0.

        Raises:
            ValueError: token_type_ids other than 0.
        """
        take_token_types(args, kwargs)
        return cast("Any", super()).generate(*args, **kwargs)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return what the decoder reads in order to give the labels; transformers' collator and Trainer call this.

        Raises:
            ValueError: the configuration has no start token.
        """
        start = self.config.decoder_start_token_id
        if start is None:
            raise ValueError("labels are read behind a start token: set decoder_start_token_id in the configuration")
        return shifted_right(labels, start, self.config.pad_token_id)
