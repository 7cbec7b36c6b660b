"""Hugging Face models; importing this folder registers them with transformers' Auto classes."""

from wordorder.errors import MissingExtra

try:
    import transformers as _  # noqa: F401
except ImportError as error:
    raise MissingExtra("transformers", "models") from error

from wordorder.models.caches import SegmentCache
from wordorder.models.classifier import (
    WordOrderClassifierForSequenceClassification,
    WordOrderClassifierModel,
    WordOrderClassifierPreTrainedModel,
)
from wordorder.models.config.classifier import WordOrderClassifierConfig
from wordorder.models.config.configuration import (
    WordOrderConfig,
    WordOrderDecoderConfig,
    WordOrderEncoderConfig,
    WordOrderSeq2SeqConfig,
    changed_defaults,
    complete_options,
)
from wordorder.models.decoder import WordOrderDecoderForCausalLM, WordOrderDecoderModel, WordOrderDecoderPreTrainedModel
from wordorder.models.encoder import (
    WordOrderEncoderForMaskedLM,
    WordOrderEncoderForQuestionAnswering,
    WordOrderEncoderForSequenceClassification,
    WordOrderEncoderForTokenClassification,
    WordOrderEncoderModel,
    WordOrderEncoderPreTrainedModel,
)
from wordorder.models.factory import (
    FOLLOWED,
    NETWORK_TASKS,
    build_config,
    build_model,
    class_with_head,
    config_fields,
    filled_fields,
    model_class,
    register_models,
)
from wordorder.models.grafts import graft, register_grafts
from wordorder.models.hub.adapters import lora_targets
from wordorder.models.length import check_length, check_positions, longest_text, takes_any_length
from wordorder.models.seq2seq import (
    WordOrderSeq2SeqForConditionalGeneration,
    WordOrderSeq2SeqModel,
    WordOrderSeq2SeqPreTrainedModel,
)
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
    "class_with_head",
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
