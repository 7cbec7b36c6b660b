"""What the Hugging Face models return: transformers' outputs with room for a memory."""

from dataclasses import dataclass
from typing import Any

from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)


@dataclass
class WordOrderModelOutput(BaseModelOutput):
    """Hidden states and, for networks that have one, the memory for the next segment."""

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
