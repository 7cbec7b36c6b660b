"""The outputs of the Hugging Face models: transformers' own with a field for a memory."""

from dataclasses import dataclass
from typing import Any, cast

from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPast,
    BaseModelOutputWithPooling,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import ModelOutput

from wordorder.memory import MemoryState
from wordorder.networks import DecoderOutput, EncoderOutput, TextOutput


def network_outputs(output: EncoderOutput | DecoderOutput | TextOutput) -> dict[str, Any]:
    """Return a network's outputs by the names that transformers has for them."""
    return {
        "last_hidden_state": output.hidden,
        "hidden_states": output.all_hidden,
        "attentions": output.attentions,
        "memory": None if isinstance(output, TextOutput) else output.memory,
    }


def body_outputs(output: ModelOutput) -> dict[str, Any]:
    """Return what a head's output takes over from that of the model without a head: all but what the head reads."""
    found = cast("dict[str, Any]", output)  # which it is, of what is not None
    return {name: value for name, value in found.items() if name not in ("last_hidden_state", "pooler_output")}


@dataclass
class WordOrderModelOutput(BaseModelOutput):
    """Hidden states and, for networks that have one, the memory for the next segment."""

    memory: MemoryState | None = None


@dataclass
class WordOrderPooledOutput(BaseModelOutputWithPooling):
    """Hidden states, one vector per text, and a memory for networks that have one."""

    memory: MemoryState | None = None


@dataclass
class WordOrderMaskedLMOutput(MaskedLMOutput):
    """Loss, logits and memory of a masked language model."""

    memory: MemoryState | None = None


@dataclass
class WordOrderSequenceClassifierOutput(SequenceClassifierOutput):
    """Loss, logits and memory of a text classifier."""

    memory: MemoryState | None = None


@dataclass
class WordOrderTokenClassifierOutput(TokenClassifierOutput):
    """Loss, logits and memory of a token classifier."""

    memory: MemoryState | None = None


@dataclass
class WordOrderQuestionAnsweringOutput(QuestionAnsweringModelOutput):
    """Loss, logits and memory of a span finder."""

    memory: MemoryState | None = None


@dataclass
class WordOrderDecoderOutput(BaseModelOutputWithPast):
    """Hidden states, cache and memory of a decoder."""

    memory: MemoryState | None = None


@dataclass
class WordOrderCausalLMOutput(CausalLMOutputWithPast):
    """Loss, logits, cache and memory of a causal language model."""

    memory: MemoryState | None = None


@dataclass
class WordOrderSeq2SeqModelOutput(Seq2SeqModelOutput):
    """Hidden states of both halves, cache and memory."""

    memory: MemoryState | None = None


@dataclass
class WordOrderSeq2SeqLMOutput(Seq2SeqLMOutput):
    """Loss, logits, cache and memory of an encoder-decoder."""

    memory: MemoryState | None = None
