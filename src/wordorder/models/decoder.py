"""The decoder as Hugging Face models: without a head, and as a language model."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from functools import wraps
from typing import Any, Unpack, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Cache, GenerationMixin
from transformers.utils.generic import can_return_tuple

from wordorder.memory import MemoryState
from wordorder.models.caches import new_cache, segment_cache
from wordorder.models.configuration import WordOrderConfig, WordOrderDecoderConfig
from wordorder.models.layout import PackedInputs, Texts, check_packing, check_token_types, refuse_mems, take_token_types
from wordorder.models.pretrained import (
    CACHE,
    ExtraInputs,
    WordOrderCausalLMOutput,
    WordOrderDecoderOutput,
    WordOrderPreTrainedModel,
    body_outputs,
    forward_options,
    given_cache,
    network_outputs,
    with_memory_loss,
)
from wordorder.models.reading import decode_batch, read_next_tokens, read_whole_segment, refuse_memory
from wordorder.networks import Decoder
from wordorder.networks.complex_valued import ComplexDecoder


def build_decoder(config: WordOrderConfig, *, cross_attention: bool = False) -> Decoder:
    """Build the decoder that a configuration describes, with real or complex layers."""
    kind: Any = ComplexDecoder if config.complex_valued else Decoder
    return kind(config.vocab_size, config.network_options("decoder"), cross_attention=cross_attention)


class WordOrderDecoderPreTrainedModel(WordOrderPreTrainedModel):
    """The base of the decoder and its head."""

    config: WordOrderDecoderConfig
    config_class = WordOrderDecoderConfig
    _no_split_modules = ["DecoderLayer"]  # noqa: RUF012  transformers declares these as plain class attributes


class WordOrderDecoderModel(WordOrderDecoderPreTrainedModel):
    """The decoder without a head."""

    def __init__(self, config: WordOrderDecoderConfig) -> None:
        super().__init__(config)
        self.decoder = build_decoder(config)
        self.post_init()

    def token_reader(self) -> Decoder:
        return self.decoder

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        memory: MemoryState | None = None,
        sequence_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        token_type_ids: Tensor | None = None,
        cache: Cache | None = None,
        **packing: Unpack[PackedInputs],
    ) -> WordOrderDecoderOutput:
        """Read a batch; see `WordOrderPreTrainedModel` for the other arguments.

        Args:
            input_ids: long (B, T); with a cache, the tokens that come after those that it holds.
            attention_mask: with a cache (B, all tokens so far); of a model with a memory padded on the left.
            position_ids: with a cache see `cached_layout`.
            past_key_values: a cache, which is added to; for a model with a memory a `SegmentCache`, and no memory.
            use_cache: begin a cache and return it; default: only where one was given.
            memory: what is given is read as one segment; with a cache it is cut every ``segment_length`` tokens.
            cache: another name of past_key_values, transformers' own from version 5.24 on.
            **packing: what collators add to packed batches for flash attention; it must agree with position_ids.

        Raises:
            ValueError: those of `WordOrderPreTrainedModel`; packed sequences or positions with gaps with a cache; or a
                cache of keys for a model with a memory, or a cache beside a memory.
        """
        check_token_types(token_type_ids, input_ids, inputs_embeds)
        check_packing(packing, position_ids)
        options = forward_options(self.config, output_attentions, output_hidden_states)
        texts = Texts(input_ids, attention_mask, position_ids, inputs_embeds, sequence_ids)
        cache = given_cache(past_key_values, cache)
        if self.config.memory == "none":
            refuse_memory(memory)
            cache = new_cache() if cache is None and use_cache else cache
            read = decode_batch(self.decoder, texts, cache, **options)
        elif cache is not None or use_cache:
            cache = segment_cache(self.config, cache, memory)
            read = read_next_tokens(self.decoder, cache, texts, **options)
        else:
            read = read_whole_segment(self.decoder, memory, texts, **options)
        return WordOrderDecoderOutput(**{CACHE: cache}, **network_outputs(read))


class LanguageModelInputs(ExtraInputs, total=False):
    """The further arguments of a language model.

    The signature of its `forward` does not name ``shift_labels``: transformers' Trainer, which looks there for
    arguments with "label" in their names, would score only batches that have all of these.
    """

    shift_labels: Tensor | None
    cache: Cache | None


class WordOrderDecoderForCausalLM(WordOrderDecoderPreTrainedModel, GenerationMixin):
    """The decoder with an output layer ``E x``, E being the token embeddings where they are tied."""

    _tied_weights_keys = {"lm_head.weight": "model.decoder.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: WordOrderDecoderConfig) -> None:
        super().__init__(config)
        self.model = WordOrderDecoderModel(config)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.head_bias)
        # transformers asks it before it lets a draft model propose tokens, which a memory could not give back
        self._is_stateful = config.memory != "none"
        self.post_init()

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
        sequence_ids: Tensor | None = None,
        **inputs: Unpack[LanguageModelInputs],
    ) -> WordOrderCausalLMOutput:
        """Predict each next token; the other arguments are those of `WordOrderDecoderModel.forward`.

        Args:
            labels: long (B, T), usually ``input_ids``: label t + 1 is what token t should give; -100 where there is
                none. The loss is the mean of the negative log-likelihood (nats) over labelled tokens.
            logits_to_keep: compute the last so many logits, or those at these columns; 0 = all.
            num_items_in_batch: labelled tokens over which the loss is a mean, if more than this batch's.
            **inputs: among them shift_labels, long (B, T), instead of labels: label t is what token t should give, -100
                where there is none. So a segment of a running text can name the first token of the next one.

        Raises:
            ValueError: as in `WordOrderDecoderModel.forward`; or labels and shift_labels, or not one for each token.
        """
        shift_labels = inputs.pop("shift_labels", None)
        if labels is not None and shift_labels is not None:
            raise ValueError("pass labels, which are shifted here, or shift_labels, which are not; not both")
        texts = input_ids, attention_mask, position_ids, past_key_values, inputs_embeds
        output = self.model(*texts, use_cache, sequence_ids=sequence_ids, **inputs)
        hidden = self.output_dropout(output.last_hidden_state[:, kept_columns(logits_to_keep)])
        logits: Tensor = self.lm_head(hidden)
        scored, loss = logits, None
        if labels is not None:
            scored, shift_labels = logits[:, :-1], labels[..., 1:]
        if shift_labels is not None:
            loss = next_token_loss(self, scored, shift_labels, num_items_in_batch)
            loss = with_memory_loss(loss, output.memory_loss, shift_labels, num_items_in_batch)
        return WordOrderCausalLMOutput(loss=loss, logits=cast("Any", logits), **body_outputs(output))

    def generate(self, *args: object, **kwargs: Any) -> Any:
        """Generate token ids as transformers' ``generate`` does, a model with a memory with a `SegmentCache`.

        Args:
            **kwargs: of transformers' ``generate``, but no position_ids other than 0, 1, ... from the first token of
                each row, which are counted here. Also ``memory``, what an earlier text left (its rows are those of the
                prompts), where the model has one.

        Raises:
            ValueError: other position_ids are given; or a memory to a model without one, or beside a cache; or
                use_cache is False in a model with a memory; or token_type_ids other than 0.
        """
        refuse_mems(kwargs)
        take_token_types(args, kwargs)
        position_ids = kwargs.pop("position_ids", None)  # of assisted generation, which counts them itself
        if position_ids is not None and not _are_counted(position_ids, kwargs.get("attention_mask")):
            raise ValueError("generate counts positions from attention_mask; leave position_ids out")
        memory = kwargs.pop("memory", None)
        if self.config.memory != "none":
            kwargs[CACHE] = self._segment_cache(memory, args, kwargs)
        else:
            refuse_memory(memory)
        return cast("Any", super()).generate(*args, **kwargs)

    def _segment_cache(self, memory: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Cache:
        """Return the cache for `generate`: the one given, or a new one with as many rows as there will be."""
        of_call = kwargs.get("generation_config", args[1] if len(args) > 1 else None)

        def setting(name: str) -> Any:
            """Return a setting of this call, of the configuration that came with it, or of the model's own."""
            values = (kwargs.get(name), getattr(of_call, name, None), getattr(self.generation_config, name, None))
            return next((value for value in values if value is not None), None)

        if setting("use_cache") is False:
            raise ValueError("use_cache=False: without its cache a model with a memory cannot write; leave it out")
        of_caller = given_cache(kwargs.pop("past_key_values", None), kwargs.pop("cache", None))
        cache = segment_cache(self.config, of_caller, memory)
        if of_caller is None:
            cache.batch_repeat_interleave(max(setting("num_beams") or 1, setting("num_return_sequences") or 1))
        return cache

    @wraps(cast("Any", GenerationMixin).prepare_inputs_for_generation)  # generate looks at its signature
    def prepare_inputs_for_generation(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: object, **kwargs: object
    ) -> dict[str, object]:
        """Prepare inputs as transformers does, but without positions, which the model takes from the mask."""
        inputs = cast("Any", super()).prepare_inputs_for_generation(*args, **kwargs)
        inputs.pop("position_ids", None)
        return inputs


def _are_counted(position_ids: Tensor, attention_mask: Tensor | None) -> bool:
    """Tell whether positions are 0, 1, ... from the first token of each row."""
    mask = position_ids.new_ones(position_ids.shape) if attention_mask is None else attention_mask
    if mask.shape != position_ids.shape:
        return False
    return bool(((position_ids == mask.cumsum(-1) - 1) | (mask == 0)).all())


def next_token_loss(
    model: WordOrderPreTrainedModel, logits_BTV: Tensor, labels_BT: Tensor, num_items_in_batch: Tensor | int | None
) -> Tensor:
    """Return the mean over labelled tokens of the negative log-likelihood, in nats and at least float32.

    With label_smoothing e in training (Szegedy et al. 2016, https://arxiv.org/abs/1512.00567, Sec. 7) and V tokens::

        loss = (1 - e) * -log p[label] + e / V * sum_v -log p[v]

    which is what transformers' Trainer makes of its argument ``label_smoothing_factor``.
    """
    if logits_BTV.shape[:-1] != labels_BT.shape:
        raise ValueError(
            "labels must be one for each token that is predicted (with labels leave logits_to_keep out), got"
            f" {tuple(labels_BT.shape)} for {tuple(logits_BTV.shape[:-1])}"
        )
    wide = logits_BTV.to(torch.promote_types(logits_BTV.dtype, torch.float32))
    reduction = "mean" if num_items_in_batch is None else "sum"
    smoothing: float = model.config.label_smoothing if model.training else 0.0
    loss = F.cross_entropy(
        wide.flatten(0, -2), labels_BT.flatten(), ignore_index=-100, reduction=reduction, label_smoothing=smoothing
    )
    if isinstance(num_items_in_batch, Tensor):  # which transformers' Trainer may have counted on another device
        num_items_in_batch = num_items_in_batch.to(loss.device)
    return loss if num_items_in_batch is None else loss / num_items_in_batch


def kept_columns(logits_to_keep: int | Tensor) -> slice | Tensor:
    """Return the columns of which logits are computed: the last so many, 0 = all; or the columns themselves."""
    return slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
