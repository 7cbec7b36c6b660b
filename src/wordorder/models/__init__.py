"""Hugging Face models; importing this folder registers them with transformers' Auto classes, and the attention."""

from wordorder.errors import MissingExtra

try:
    import transformers as _  # noqa: F401
except ImportError as error:
    raise MissingExtra("transformers", "models") from error

from wordorder.models.caches import SegmentCache as SegmentCache
from wordorder.models.configuration import WordOrderConfig as WordOrderConfig
from wordorder.models.configuration import WordOrderDecoderConfig as WordOrderDecoderConfig
from wordorder.models.configuration import WordOrderEncoderConfig as WordOrderEncoderConfig
from wordorder.models.configuration import WordOrderSeq2SeqConfig as WordOrderSeq2SeqConfig
from wordorder.models.decoder import WordOrderDecoderForCausalLM as WordOrderDecoderForCausalLM
from wordorder.models.decoder import WordOrderDecoderModel as WordOrderDecoderModel
from wordorder.models.decoder import WordOrderDecoderPreTrainedModel as WordOrderDecoderPreTrainedModel
from wordorder.models.encoder import WordOrderEncoderForMaskedLM as WordOrderEncoderForMaskedLM
from wordorder.models.encoder import WordOrderEncoderForQuestionAnswering as WordOrderEncoderForQuestionAnswering
from wordorder.models.encoder import (
    WordOrderEncoderForSequenceClassification as WordOrderEncoderForSequenceClassification,
)
from wordorder.models.encoder import WordOrderEncoderForTokenClassification as WordOrderEncoderForTokenClassification
from wordorder.models.encoder import WordOrderEncoderModel as WordOrderEncoderModel
from wordorder.models.encoder import WordOrderEncoderPreTrainedModel as WordOrderEncoderPreTrainedModel
from wordorder.models.factory import FOLLOWED as FOLLOWED
from wordorder.models.factory import NETWORK_TASKS as NETWORK_TASKS
from wordorder.models.factory import build_config as build_config
from wordorder.models.factory import build_model as build_model
from wordorder.models.factory import class_with_head as class_with_head
from wordorder.models.factory import config_fields as config_fields
from wordorder.models.factory import filled_fields as filled_fields
from wordorder.models.factory import lora_targets as lora_targets
from wordorder.models.factory import model_class as model_class
from wordorder.models.factory import register_models
from wordorder.models.head_norms import qk_norm_of as qk_norm_of
from wordorder.models.hosts import HOST_FIELDS as HOST_FIELDS
from wordorder.models.hosts import built as built
from wordorder.models.hosts import host_config as host_config
from wordorder.models.hosts import load_host as load_host
from wordorder.models.seq2seq import (
    WordOrderSeq2SeqForConditionalGeneration as WordOrderSeq2SeqForConditionalGeneration,
)
from wordorder.models.seq2seq import WordOrderSeq2SeqModel as WordOrderSeq2SeqModel
from wordorder.models.seq2seq import WordOrderSeq2SeqPreTrainedModel as WordOrderSeq2SeqPreTrainedModel
from wordorder.models.streaming import check_length as check_length
from wordorder.models.streaming import check_positions as check_positions
from wordorder.models.streaming import check_room as check_room
from wordorder.models.streaming import longest_text as longest_text
from wordorder.models.streaming import stream_tokens as stream_tokens
from wordorder.models.streaming import takes_any_length as takes_any_length
from wordorder.models.swap import FAMILIES as FAMILIES
from wordorder.models.swap import load_swapped as load_swapped
from wordorder.models.swap import register as register_swapped
from wordorder.models.swap import save_swapped as save_swapped
from wordorder.models.swap import swap_encoding as swap_encoding
from wordorder.models.swap import unswap as unswap

register_models()
register_swapped()
