"""The bases of all models and heads of this package: outputs, what a call may ask for, embeddings, loss."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict, Unpack, cast

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedConfig, PreTrainedModel, modeling_outputs
from transformers.utils.generic import ModelOutput, can_return_tuple

from wordorder.encodings import ReplacesEmbedding
from wordorder.errors import BadInput
from wordorder.memory import MemoryState
from wordorder.models.faults import not_tied
from wordorder.models.layout import PackedInputs
from wordorder.networks import DecoderOutput, EncoderOutput, initialise_module

_NAMES = {field.name for field in fields(modeling_outputs.BaseModelOutputWithPast)}
CACHE = "cache" if "cache" in _NAMES else "past_key_values"
"""Transformers' name of the cache in arguments and outputs: "past_key_values", and "cache" from version 5.24 on."""


def given_cache(past_key_values: Cache | None, cache: Cache | None) -> Cache | None:
    """Return the cache that was given by one of its two names, and refuse two of them."""
    if past_key_values is not None and cache is not None:
        raise ValueError("pass the cache as past_key_values or as cache, not as both")
    return cache if past_key_values is None else past_key_values


@dataclass
class WithMemory:
    """The fields that an output has beside transformers': a memory for the next segment, what its weights learn from.

    In training the loss of a head contains ``memory_loss``.
    """

    memory: MemoryState | None = None
    memory_loss: Tensor | None = None


@dataclass
class WordOrderModelOutput(WithMemory, modeling_outputs.BaseModelOutput):
    """Hidden states and, for networks that have one, the memory for the next segment."""


@dataclass
class WordOrderPooledOutput(WithMemory, modeling_outputs.BaseModelOutputWithPooling):
    """Hidden states, one vector per text, and a memory for networks that have one."""


@dataclass
class WordOrderMaskedLMOutput(WithMemory, modeling_outputs.MaskedLMOutput):
    """Loss, logits and memory of a masked language model."""


@dataclass
class WordOrderSequenceClassifierOutput(WithMemory, modeling_outputs.SequenceClassifierOutput):
    """Loss, logits and memory of a text classifier."""


@dataclass
class WordOrderTokenClassifierOutput(WithMemory, modeling_outputs.TokenClassifierOutput):
    """Loss, logits and memory of a token classifier."""


@dataclass
class WordOrderQuestionAnsweringOutput(WithMemory, modeling_outputs.QuestionAnsweringModelOutput):
    """Loss, logits and memory of a span finder."""


@dataclass
class WordOrderDecoderOutput(WithMemory, modeling_outputs.BaseModelOutputWithPast):
    """Hidden states, cache and memory of a decoder."""


@dataclass
class WordOrderCausalLMOutput(WithMemory, modeling_outputs.CausalLMOutputWithPast):
    """Loss, logits, cache and memory of a causal language model."""


@dataclass
class WordOrderSeq2SeqModelOutput(WithMemory, modeling_outputs.Seq2SeqModelOutput):
    """Hidden states of both halves, cache and memory."""


@dataclass
class WordOrderSeq2SeqLMOutput(WithMemory, modeling_outputs.Seq2SeqLMOutput):
    """Loss, logits, cache and memory of an encoder-decoder."""


def network_outputs(output: EncoderOutput | DecoderOutput) -> dict[str, Any]:
    """Return a network's outputs by the names that transformers has for them."""
    return {
        "last_hidden_state": output.hidden,
        "hidden_states": output.all_hidden,
        "attentions": output.attentions,
        "memory": output.memory,
        "memory_loss": output.memory_loss,
    }


def body_outputs(output: ModelOutput) -> dict[str, Any]:
    """Return what a head's output takes over from that of the model without a head: all but what the head reads."""
    return {name: value for name, value in output.items() if name not in ("last_hidden_state", "pooler_output")}


def with_memory_loss(loss: Any, memory_loss: Tensor | None, labels: Tensor, items: Tensor | int | None) -> Any:
    """Add what a memory learns from to the loss of a head, by this batch's share in the labels of a step."""
    if loss is None or memory_loss is None:
        return loss
    share = 1 if items is None else ((labels != -100).sum() / items).to(loss.device)
    return loss + memory_loss * share


class ExtraInputs(PackedInputs, total=False):
    """The arguments that a head hands on to its model without a head, whose ``forward`` describes them.

    Those that a dataset may have as columns are none of these: transformers' Trainer drops every column that a head's
    ``forward`` does not name.
    """

    output_attentions: bool | None
    output_hidden_states: bool | None
    token_type_ids: Tensor | None
    memory: MemoryState | None


class ForwardOptions(TypedDict):
    """The keywords of a network's forward that say how it is run and what it returns beside its output."""

    backend: str | None
    return_all_hidden: bool
    return_attentions: bool


def forward_options(config: Any, output_attentions: bool | None, output_hidden_states: bool | None) -> ForwardOptions:
    """Return the options of a call: what the call says, else what the configuration says."""
    states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
    attentions = config.output_attentions if output_attentions is None else output_attentions
    eager = getattr(config, "_attn_implementation", None) == "eager"
    return {
        "backend": "reference" if eager else None,
        "return_all_hidden": bool(states),
        "return_attentions": bool(attentions),
    }


_MODULES = {"encoding", "embedding"}
"""The modules that an encoding makes: its own, and the token embeddings where it replaces them."""


class LoadsEncoding(PreTrainedModel):
    """A model with an encoding, whose ``from_pretrained`` warns where the checkpoint's positions are dropped."""

    @staticmethod
    def _finalize_model_loading(model: Any, load_config: Any, loading_info: Any) -> Any:
        report = PreTrainedModel._finalize_model_loading(model, load_config, loading_info)
        unused = [*report.unexpected_keys, *(name for name, *_ in report.mismatched_keys)]
        dropped = sorted(name for name in unused if _MODULES & set(name.split(".")))
        before = _saved_encoding(load_config) if dropped else None
        if before not in (None, model.config.encoding):
            warnings.warn(
                f"the positions of {load_config.pretrained_model_name_or_path} are dropped: it was trained with"
                f" encoding {before!r}, and this model has encoding {model.config.encoding!r}, which has no place for"
                f" {len(dropped)} of its weights ({', '.join(dropped[:3])}{', ...' if dropped[3:] else ''}); train the"
                f" model again, or load it with encoding={before!r}",
                stacklevel=3,  # where from_pretrained was called
            )
        return report


class WordOrderPreTrainedModel(LoadsEncoding):
    """The base of every model here; a network's own base adds its configuration's class and its layers' names.

    A model without a head says in `token_reader` where its token embeddings are. A head has such a model as ``model``.

    Arguments that every ``forward`` reads in the same way::

        input_ids             long (B, T)
        attention_mask        (B, T), 1 = token, 0 = padding, wherever it stands; left out where nothing is padded
        position_ids          long (B or 1, T); `layout_of` says when they mean packed sequences
        sequence_ids          long (B, T), the packed sequence that a token belongs to
        inputs_embeds         instead of input_ids, (B, T, C)
        memory                what the segment before left (`wordorder.memory`); None = the beginning of a text
        output_attentions     also return attention weights (slow); default: the configuration's
        output_hidden_states  also return every layer's output; default: the configuration's
        token_type_ids        of a tokenizer, long and all 0: there are no segment embeddings

    It raises ValueError for both or neither of input_ids and inputs_embeds, a wrong shape, a position beyond a learned
    table, a memory given to a model without one, positions or packed sequences given to one with a memory, and
    token_type_ids other than 0.
    """

    config: Any  # a WordOrderConfig; each network's base says which
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = False
    _supports_flex_attn = False
    _can_compile_fullgraph = True
    accepts_loss_kwargs = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        initialise_module(module, std=self.config.initializer_range)

    loss_function: Any  # transformers' loss of the kind ``loss_type``, which each head sets for its subclasses too

    def token_reader(self) -> Any:
        """Return the part of the network that holds the token embeddings, as ``embedding``."""
        return cast("Any", self.base_model).token_reader()

    def get_input_embeddings(self) -> nn.Module:
        return self.token_reader().embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.token_reader().embedding = value

    def get_submodule(self, target: str) -> nn.Module:
        """Return a module by its name; peft's prompt learning takes the token embeddings in this way."""
        try:
            return super().get_submodule(target)
        except AttributeError as error:
            if "embedding" in target.split(".") and isinstance(self.get_input_embeddings(), ReplacesEmbedding):
                raise AttributeError(
                    f"{target} is no module: encoding {self.config.encoding!r} replaces the table of token embeddings,"
                    " and what it gives depends on positions, which prompt learning (prompt, prefix and P-tuning) does"
                    " not know; take LoRA or another adapter, or an encoding that keeps the table"
                ) from error
            raise

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> Any:
        """Change the number of tokens in every table with a row per token, also those of an encoding."""
        table = self.get_input_embeddings()
        if not isinstance(table, ReplacesEmbedding):
            table = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
            self._forget_lost_tokens()
            return table
        if new_num_tokens is None and pad_to_multiple_of is None:
            return table
        count, multiple = new_num_tokens or table.num_embeddings, pad_to_multiple_of or 1
        count = -(-count // multiple) * multiple
        replaced = [module for module in self.modules() if isinstance(module, ReplacesEmbedding)]
        trained = [(p, p.requires_grad) for module in replaced for p in module.parameters()]
        super().resize_token_embeddings(count, None, mean_resizing)
        for parameter, requires_grad in trained:  # transformers would thaw what is frozen
            parameter.requires_grad_(requires_grad)
        self.config.vocab_size = self.vocab_size = count  # transformers read it from a table that may have one row
        self._forget_lost_tokens()
        return table

    def _forget_lost_tokens(self) -> None:
        """Forget special tokens that were cut off, with which a saved configuration could not be loaded."""
        for name in ("pad_token_id", "decoder_start_token_id"):
            token = getattr(self.config, name, None)
            if token is not None and token >= self.config.vocab_size:
                setattr(self.config, name, None)

    def _get_resized_embeddings(
        self,
        old_embeddings: Any,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> Any:
        if not isinstance(old_embeddings, ReplacesEmbedding):
            return super()._get_resized_embeddings(old_embeddings, new_num_tokens, pad_to_multiple_of, mean_resizing)
        if new_num_tokens not in (None, old_embeddings.num_embeddings):
            old_embeddings.resize(new_num_tokens, std=None if mean_resizing else self.config.initializer_range)
        return old_embeddings

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        return self.named_by_table(super().get_expanded_tied_weights_keys(all_submodels))

    def named_by_table(self, tied: Mapping[str, str]) -> dict[str, str]:
        """Return tied names with the ``weight`` of an encoding that replaces nn.Embedding under its own name."""
        names = dict(tied)
        for target, source in tied.items():
            prefix = source.removesuffix(".weight")
            table = None if prefix == source else self.get_submodule(prefix)
            if isinstance(table, ReplacesEmbedding):
                output, shared = tuple(self.get_parameter(target).shape), tuple(table.weight.shape)
                if output != shared:
                    raise BadInput(not_tied(output, shared, self.config.encoding))
                own = next(name for name, weight in table.named_parameters() if weight is table.weight)
                names[target] = f"{prefix}.{own}"
        return names


def _saved_encoding(load_config: Any) -> str | None:
    """Return the encoding in a checkpoint's config.json, which is here already; None if there is none."""
    if load_config.pretrained_model_name_or_path is None:  # weights without a folder
        return None
    source = {**load_config.download_kwargs, "local_files_only": True, "force_download": False}
    try:
        settings, _ = PreTrainedConfig.get_config_dict(load_config.pretrained_model_name_or_path, **source)
    except OSError:
        return None
    return settings.get("encoding")


class LabelledHead(WordOrderPreTrainedModel):
    """A head that learns from ``labels``: its class says what it predicts, into which output, and what labels are."""

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
        sequence_ids: Tensor | None = None,
        **inputs: Unpack[ExtraInputs],
    ) -> ModelOutput:
        """Read texts and predict; the other arguments are those of the model without a head.

        Args:
            labels: what should be predicted, see the class; with them the output has a loss.
            num_items_in_batch: labels over which the loss is a mean, if more than this batch's.
        """
        packed = {} if sequence_ids is None else {"sequence_ids": sequence_ids}
        output = self.read(input_ids, attention_mask, position_ids, inputs_embeds, **packed, **inputs)
        logits, loss = self.predict(output, attention_mask, labels, num_items_in_batch)
        if labels is not None:
            loss = with_memory_loss(loss, output.get("memory_loss"), labels, num_items_in_batch)
        return self.output_class(loss=loss, logits=logits, **body_outputs(output))

    def read(self, *texts: Tensor | None, **inputs: Any) -> Any:
        """Return the output of the model without a head."""
        return self.model(*texts, **inputs)

    def predict(
        self, output: Any, attention_mask: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits, and the loss where there are labels; ``output`` is that of the model without a head."""
        raise NotImplementedError

    def one_class_each(self, labels: Tensor) -> bool:
        """Tell whether every text has one class of several, by the configuration or else by the labels' dtype."""
        if self.config.problem_type is not None:
            return self.config.problem_type == "single_label_classification"
        return self.config.num_labels > 1 and labels.dtype in (torch.int64, torch.int32)

    def loss_of_texts(self, logits: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
        """Return the loss of one answer per text: a mean over ``num_items_in_batch`` labels, or over this batch's."""
        mean_of_batch = num_items_in_batch is not None and not self.one_class_each(labels)
        inputs: dict[str, Any] = {"labels": labels, "pooled_logits": logits, "config": self.config}
        loss: Tensor = self.loss_function(**inputs, num_items_in_batch=num_items_in_batch)
        # transformers counts classes over several batches, but not numbers or several labels per text
        return loss * (labels.numel() / cast("int", num_items_in_batch)) if mean_of_batch else loss


def classifier_dropout(config: Any) -> nn.Dropout:
    """Return the dropout before a classifier's output layer."""
    chosen = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if chosen is None else chosen)
