"""Hugging Face models; importing this folder registers them with transformers' Auto classes."""

from wordorder.errors import MissingExtra

try:
    import transformers as _  # noqa: F401
except ImportError as error:
    raise MissingExtra("transformers", "models") from error

from wordorder.models.adapters import lora_targets
from wordorder.models.causal_lm import WordOrderDecoderForCausalLM
from wordorder.models.classification import (
    WordOrderEncoderForSequenceClassification,
    WordOrderEncoderForTokenClassification,
)
from wordorder.models.classifier import (
    WordOrderClassifierForSequenceClassification,
    WordOrderClassifierModel,
    WordOrderClassifierPreTrainedModel,
)
from wordorder.models.classifier_configuration import WordOrderClassifierConfig
from wordorder.models.conditional_generation import WordOrderSeq2SeqForConditionalGeneration
from wordorder.models.configuration import WordOrderConfig
from wordorder.models.decoder import WordOrderDecoderModel, WordOrderDecoderPreTrainedModel
from wordorder.models.decoder_configuration import WordOrderDecoderConfig
from wordorder.models.encoder import WordOrderEncoderModel, WordOrderEncoderPreTrainedModel
from wordorder.models.encoder_configuration import WordOrderEncoderConfig
from wordorder.models.encoding_defaults import changed_defaults, complete_options
from wordorder.models.factory import (
    FOLLOWED,
    NETWORK_TASKS,
    build_config,
    build_model,
    config_fields,
    filled_fields,
    model_class,
)
from wordorder.models.grafting import graft, register_grafts
from wordorder.models.length import check_length, check_positions, longest_text, takes_any_length
from wordorder.models.masked_lm import WordOrderEncoderForMaskedLM
from wordorder.models.question_answering import WordOrderEncoderForQuestionAnswering
from wordorder.models.registration import register_models
from wordorder.models.segment_cache import SegmentCache
from wordorder.models.seq2seq import WordOrderSeq2SeqModel, WordOrderSeq2SeqPreTrainedModel
from wordorder.models.seq2seq_configuration import WordOrderSeq2SeqConfig
from wordorder.models.streaming import check_room, stream_tokens

register_models()
register_grafts()

__all__ = [
    "FOLLOWED",
    "NETWORK_TASKS",
    "SegmentCache",
    "WordOrderClassifierConfig",
    "WordOrderClassifierForSequenceClassification",
    "WordOrderClassifierModel",
    "WordOrderClassifierPreTrainedModel",
    "WordOrderConfig",
    "WordOrderDecoderConfig",
    "WordOrderDecoderForCausalLM",
    "WordOrderDecoderModel",
    "WordOrderDecoderPreTrainedModel",
    "WordOrderEncoderConfig",
    "WordOrderEncoderForMaskedLM",
    "WordOrderEncoderForQuestionAnswering",
    "WordOrderEncoderForSequenceClassification",
    "WordOrderEncoderForTokenClassification",
    "WordOrderEncoderModel",
    "WordOrderEncoderPreTrainedModel",
    "WordOrderSeq2SeqConfig",
    "WordOrderSeq2SeqForConditionalGeneration",
    "WordOrderSeq2SeqModel",
    "WordOrderSeq2SeqPreTrainedModel",
    "build_config",
    "build_model",
    "changed_defaults",
    "check_length",
    "check_positions",
    "check_room",
    "complete_options",
    "config_fields",
    "filled_fields",
    "graft",
    "longest_text",
    "lora_targets",
    "model_class",
    "stream_tokens",
    "takes_any_length",
]
