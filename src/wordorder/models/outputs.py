"""What the Hugging Face models return: transformers' outputs with room for a memory."""

from dataclasses import dataclass
from typing import Any

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


@dataclass
class WordOrderModelOutput(BaseModelOutput):
    """Hidden states and, for networks that have one, the memory for the next segment."""

    memory: Any = None


@dataclass
class WordOrderPooledOutput(BaseModelOutputWithPooling):
    """Hidden states, one vector per text, and a memory for networks that have one."""

    memory: Any = None


@dataclass
class WordOrderMaskedLMOutput(MaskedLMOutput):
    """Loss, logits and memory of a masked language model."""

    memory: Any = None


@dataclass
class WordOrderSequenceClassifierOutput(SequenceClassifierOutput):
    """Loss, logits and memory of a text classifier."""

    memory: Any = None


@dataclass
class WordOrderTokenClassifierOutput(TokenClassifierOutput):
    """Loss, logits and memory of a token classifier."""

    memory: Any = None


@dataclass
class WordOrderQuestionAnsweringOutput(QuestionAnsweringModelOutput):
    """Loss, logits and memory of a span finder."""

    memory: Any = None


@dataclass
class WordOrderDecoderOutput(BaseModelOutputWithPast):
    """Hidden states, cache and memory of a decoder."""

    memory: Any = None


@dataclass
class WordOrderCausalLMOutput(CausalLMOutputWithPast):
    """Loss, logits, cache and memory of a causal language model."""

    memory: Any = None


@dataclass
class WordOrderSeq2SeqModelOutput(Seq2SeqModelOutput):
    """Hidden states of both halves, cache and memory."""

    memory: Any = None


@dataclass
class WordOrderSeq2SeqLMOutput(Seq2SeqLMOutput):
    """Loss, logits, cache and memory of an encoder-decoder."""

    memory: Any = None
