"""Hugging Face models; importing this folder registers them with transformers' Auto classes."""

# transformers' registration functions are typed in part only
# pyright: reportUnknownMemberType=false

from wordorder.errors import MissingExtra

try:
    import transformers as _  # noqa: F401
except ImportError as error:
    raise MissingExtra("transformers", "models") from error

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from wordorder.models.classification import (
    WordOrderEncoderForSequenceClassification,
    WordOrderEncoderForTokenClassification,
)
from wordorder.models.configuration import WordOrderEncoderConfig, check_length
from wordorder.models.encoder import WordOrderEncoderModel, WordOrderEncoderPreTrainedModel
from wordorder.models.factory import NETWORK_TASKS, build_config, build_model, config_fields, model_class
from wordorder.models.grafting import graft, register_grafts
from wordorder.models.masked_lm import WordOrderEncoderForMaskedLM
from wordorder.models.question_answering import WordOrderEncoderForQuestionAnswering

AutoConfig.register(WordOrderEncoderConfig.model_type, WordOrderEncoderConfig, exist_ok=True)
AutoModel.register(WordOrderEncoderConfig, WordOrderEncoderModel, exist_ok=True)
AutoModelForMaskedLM.register(WordOrderEncoderConfig, WordOrderEncoderForMaskedLM, exist_ok=True)
AutoModelForQuestionAnswering.register(WordOrderEncoderConfig, WordOrderEncoderForQuestionAnswering, exist_ok=True)
AutoModelForSequenceClassification.register(
    WordOrderEncoderConfig, WordOrderEncoderForSequenceClassification, exist_ok=True
)
AutoModelForTokenClassification.register(WordOrderEncoderConfig, WordOrderEncoderForTokenClassification, exist_ok=True)
register_grafts()

__all__ = [
    "NETWORK_TASKS",
    "WordOrderEncoderConfig",
    "WordOrderEncoderForMaskedLM",
    "WordOrderEncoderForQuestionAnswering",
    "WordOrderEncoderForSequenceClassification",
    "WordOrderEncoderForTokenClassification",
    "WordOrderEncoderModel",
    "WordOrderEncoderPreTrainedModel",
    "build_config",
    "build_model",
    "check_length",
    "config_fields",
    "graft",
    "model_class",
]
