"""Encoder and decoder together as Hugging Face models: without a head, and as a translator."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any, Unpack, cast

import torch
from torch import Tensor, nn
from transformers import Cache, GenerationMixin
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import can_return_tuple

from wordorder.models.caches import new_cache
from wordorder.models.configuration import WordOrderSeq2SeqConfig
from wordorder.models.decoder import build_decoder, kept_columns, next_token_loss
from wordorder.models.encoder import build_encoder
from wordorder.models.layout import Texts, check_token_types, layout_of, take_token_types
from wordorder.models.pretrained import (
    CACHE,
    ExtraInputs,
    WordOrderModelOutput,
    WordOrderPreTrainedModel,
    WordOrderSeq2SeqLMOutput,
    WordOrderSeq2SeqModelOutput,
    body_outputs,
    forward_options,
    given_cache,
    network_outputs,
)
from wordorder.models.reading import decode_batch, encode_batch
from wordorder.networks import Encoder, Seq2Seq
from wordorder.ops import Packed


class SourceReader(nn.Module):
    """The encoder of a `WordOrderSeq2SeqModel`, which keeps it, as ``generate`` calls it before the first token."""

    main_input_name = "input_ids"

    def __init__(self, encoder: Encoder, config: WordOrderSeq2SeqConfig) -> None:
        super().__init__()
        self.encoder, self.config = encoder, config

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> WordOrderModelOutput:
        """Encode a batch; the arguments mean what they mean in `WordOrderEncoderModel.forward`."""
        options = forward_options(self.config, output_attentions, output_hidden_states)
        texts = Texts(input_ids, attention_mask, position_ids, inputs_embeds, sequence_ids)
        return WordOrderModelOutput(**network_outputs(encode_batch(self.encoder, texts, **options)))


class WordOrderSeq2SeqPreTrainedModel(WordOrderPreTrainedModel):
    """The base of the encoder-decoder and its head: the embeddings, and how they are resized together."""

    config: WordOrderSeq2SeqConfig
    config_class = WordOrderSeq2SeqConfig
    _no_split_modules = ["EncoderLayer", "DecoderLayer"]  # noqa: RUF012
    _tied_weights_keys: dict[str, str]  # of each model, by its configuration

    def network(self) -> Seq2Seq:
        return cast("Any", self.base_model).seq2seq

    def token_reader(self) -> Encoder:
        return self.network().encoder

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embeddings of the source (and, where they are shared, of the target)."""
        super().set_input_embeddings(value)
        network = self.network()
        if network.share_embeddings:
            network.decoder.embedding = network.encoder.embedding

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        """Resize the target's table as well: there is one vocabulary."""
        network, of_source = self.network(), super()._resize_token_embeddings(*args, **kwargs)
        if not network.share_embeddings:
            of_target = self._get_resized_embeddings(network.decoder.embedding, *args, **kwargs)
            network.decoder.embedding = of_target.requires_grad_(network.decoder.embedding.weight.requires_grad)
        return of_source

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Return what is tied here; transformers would ask tie_word_embeddings, which means the output layer only."""
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels)
        return self.named_by_table(self._tied_weights_keys)

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        """Return the half that reads the source, as ``generate`` calls it."""
        return SourceReader(self.network().encoder, self.config)

    def get_decoder(self) -> nn.Module:
        return self.network().decoder


class WordOrderSeq2SeqModel(WordOrderSeq2SeqPreTrainedModel):
    """Encoder and decoder without a head."""

    def __init__(self, config: WordOrderSeq2SeqConfig) -> None:
        super().__init__(config)
        encoder, decoder = build_encoder(config), build_decoder(config, cross_attention=True)
        self.seq2seq = Seq2Seq(encoder, decoder, share_embeddings=config.share_embeddings)
        shared = self.seq2seq.encoder.embedding.named_parameters() if config.share_embeddings else ()
        tied = {f"seq2seq.decoder.embedding.{name}": f"seq2seq.encoder.embedding.{name}" for name, _ in shared}
        self._tied_weights_keys = tied  # so that a saved model holds the table once
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        sequence_ids: Tensor | None = None,
        decoder_sequence_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        token_type_ids: Tensor | None = None,
        cache: Cache | None = None,
    ) -> WordOrderSeq2SeqModelOutput:
        """Read a source and a target; see `WordOrderPreTrainedModel` for the other arguments, which are the source's.

        Args:
            input_ids: the source, long (B, S); not read where encoder_outputs are given.
            decoder_input_ids: the target, long (B, T): a start token, then all but the target's last token; with a
                cache, the tokens that come after those that it holds.
            decoder_attention_mask: of the target, as in `WordOrderDecoderModel.forward`; not needed where targets are
                padded on the right.
            decoder_position_ids: of the target, long (B or 1, T); packed targets need packed sources.
            encoder_outputs: what the encoder gave, so that it need not run; (B, S, channels) comes first.
            past_key_values: and use_cache, cache as in `WordOrderDecoderModel.forward`.
            decoder_inputs_embeds: instead of decoder_input_ids, (B, T, C).
            decoder_sequence_ids: long (B, T), the source's packed sequence that a token of the target reads.

        Raises:
            ValueError: those of `WordOrderPreTrainedModel`; no source or no target, or packed sequences with a cache or
                on one side only.
        """
        check_token_types(token_type_ids, input_ids, inputs_embeds)
        options = forward_options(self.config, output_attentions, output_hidden_states)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            raise ValueError("pass exactly one of decoder_input_ids and decoder_inputs_embeds (or labels, to a head)")
        if encoder_outputs is None:
            source = Texts(input_ids, attention_mask, position_ids, inputs_embeds, sequence_ids)
            read = encode_batch(self.seq2seq.encoder, source, **options)
            encoder_outputs = WordOrderModelOutput(**network_outputs(read))
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        encoded: Tensor = encoder_outputs[0]
        if attention_mask is not None and attention_mask.shape != encoded.shape[:2]:
            raise ValueError(
                f"attention_mask must be (batch, tokens) = {tuple(encoded.shape[:2])}, those of encoder_outputs, got"
                f" {tuple(attention_mask.shape)}"
            )
        packed = position_ids is not None or sequence_ids is not None
        if packed != (decoder_position_ids is not None or decoder_sequence_ids is not None):
            raise ValueError(
                "packed sources need packed targets, and the other way round: pass position_ids and"
                " decoder_position_ids (or sequence_ids and decoder_sequence_ids), or none of them"
            )
        # where rows are packed, a target sees its own source only
        positions = layout_of((encoded.shape[0], encoded.shape[1]), None, position_ids, sequence_ids).positions
        cache = given_cache(past_key_values, cache)
        cache = new_cache(source=True) if cache is None and use_cache else cache
        target = decoder_input_ids, decoder_attention_mask, decoder_position_ids, decoder_inputs_embeds
        read = decode_batch(
            self.seq2seq.decoder,
            Texts(*target, decoder_sequence_ids),
            cache,
            source=encoded,
            source_mask=attention_mask,
            source_positions=positions if isinstance(positions, Packed) else None,
            **options,
        )
        return WordOrderSeq2SeqModelOutput(
            last_hidden_state=read.hidden,
            decoder_hidden_states=read.all_hidden,
            decoder_attentions=read.attentions,
            cross_attentions=read.cross_attentions,
            encoder_last_hidden_state=encoded,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
            **{CACHE: cast("Any", cache)},
        )


class Seq2SeqInputs(ExtraInputs, total=False):
    """The arguments that the head hands on to `WordOrderSeq2SeqModel.forward`, which describes them."""

    past_key_values: Cache | None
    cache: Cache | None
    inputs_embeds: Tensor | None
    decoder_inputs_embeds: Tensor | None
    use_cache: bool | None


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
        decoder_attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        decoder_sequence_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        **inputs: Unpack[Seq2SeqInputs],
    ) -> WordOrderSeq2SeqLMOutput:
        """Predict each next token of the target.

        Args:
            decoder_input_ids: as the model without a head; default: the labels, shifted right behind the start token.
            labels: long (B, T), the target, -100 where it is padded (on the right); the loss is as there.
            logits_to_keep: and num_items_in_batch as in `WordOrderDecoderForCausalLM.forward`.
            **inputs: the other arguments of `WordOrderSeq2SeqModel.forward`.

        Raises:
            ValueError: as there; or labels are to be shifted, and the configuration has no start token.
        """
        if labels is not None and decoder_input_ids is None and inputs.get("decoder_inputs_embeds") is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        sequences = {"sequence_ids": sequence_ids, "decoder_sequence_ids": decoder_sequence_ids}
        texts = input_ids, attention_mask, decoder_input_ids, decoder_attention_mask, position_ids, decoder_position_ids
        output = self.model(*texts, encoder_outputs, **sequences, **inputs)
        logits = self.lm_head(output.last_hidden_state[:, kept_columns(logits_to_keep)])
        loss: Any = None if labels is None else next_token_loss(self, logits, labels, num_items_in_batch)
        return WordOrderSeq2SeqLMOutput(loss=loss, logits=logits, **body_outputs(output))

    def generate(self, *args: object, **kwargs: Any) -> Any:
        take_token_types(args, kwargs)
        return cast("Any", super()).generate(*args, **kwargs)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return the start token and all labels but the last; transformers' collator and Trainer call this."""
        start = self.config.decoder_start_token_id
        if start is None:
            raise ValueError("labels are read behind a start token: set decoder_start_token_id in the configuration")
        if labels.dim() != 2:
            raise ValueError(f"labels must be (batch, tokens), got {tuple(labels.shape)}")
        # nothing that has a label sees what stands in for -100, where targets are padded on the right
        read_BT = torch.cat((torch.full_like(labels[:, :1], start), labels[:, :-1]), dim=1)
        return read_BT.masked_fill(read_BT == -100, self.config.pad_token_id or 0)
