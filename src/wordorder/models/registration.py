"""Register the models with transformers' Auto classes."""

# transformers' registration functions are typed in part only
# pyright: reportUnknownMemberType=false

from typing import Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from wordorder.models.classifier import WordOrderClassifierForSequenceClassification, WordOrderClassifierModel
from wordorder.models.config.classifier import WordOrderClassifierConfig
from wordorder.models.config.configuration import WordOrderConfig
from wordorder.models.config.decoder import WordOrderDecoderConfig
from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.config.seq2seq import WordOrderSeq2SeqConfig
from wordorder.models.decoder.causal_lm import WordOrderDecoderForCausalLM
from wordorder.models.decoder.model import WordOrderDecoderModel
from wordorder.models.encoder.classification import (
    WordOrderEncoderForSequenceClassification,
    WordOrderEncoderForTokenClassification,
)
from wordorder.models.encoder.masked_lm import WordOrderEncoderForMaskedLM
from wordorder.models.encoder.model import WordOrderEncoderModel
from wordorder.models.encoder.question_answering import WordOrderEncoderForQuestionAnswering
from wordorder.models.seq2seq.conditional_generation import WordOrderSeq2SeqForConditionalGeneration
from wordorder.models.seq2seq.model import WordOrderSeq2SeqModel

MODELS: dict[type[WordOrderConfig], dict[Any, type[PreTrainedModel]]] = {
    WordOrderEncoderConfig: {
        AutoModel: WordOrderEncoderModel,
        AutoModelForMaskedLM: WordOrderEncoderForMaskedLM,
        AutoModelForQuestionAnswering: WordOrderEncoderForQuestionAnswering,
        AutoModelForSequenceClassification: WordOrderEncoderForSequenceClassification,
        AutoModelForTokenClassification: WordOrderEncoderForTokenClassification,
    },
    WordOrderDecoderConfig: {
        AutoModel: WordOrderDecoderModel,
        AutoModelForCausalLM: WordOrderDecoderForCausalLM,
    },
    WordOrderSeq2SeqConfig: {
        AutoModel: WordOrderSeq2SeqModel,
        AutoModelForSeq2SeqLM: WordOrderSeq2SeqForConditionalGeneration,
    },
    WordOrderClassifierConfig: {
        AutoModel: WordOrderClassifierModel,
        AutoModelForSequenceClassification: WordOrderClassifierForSequenceClassification,
    },
}


def register_models() -> None:
    """Register every model here with transformers' Auto classes."""
    for config, classes in MODELS.items():
        AutoConfig.register(config.model_type, config, exist_ok=True)
        for auto, model in classes.items():
            auto.register(config, model, exist_ok=True)
