"""Which class each of transformers' Auto classes gives for each of our configurations."""

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

from wordorder.models.causal_lm import WordOrderDecoderForCausalLM
from wordorder.models.classification import (
    WordOrderEncoderForSequenceClassification,
    WordOrderEncoderForTokenClassification,
)
from wordorder.models.classifier import WordOrderClassifierForSequenceClassification, WordOrderClassifierModel
from wordorder.models.classifier_configuration import WordOrderClassifierConfig
from wordorder.models.conditional_generation import WordOrderSeq2SeqForConditionalGeneration
from wordorder.models.configuration import WordOrderConfig
from wordorder.models.decoder import WordOrderDecoderModel
from wordorder.models.decoder_configuration import WordOrderDecoderConfig
from wordorder.models.encoder import WordOrderEncoderModel
from wordorder.models.encoder_configuration import WordOrderEncoderConfig
from wordorder.models.masked_lm import WordOrderEncoderForMaskedLM
from wordorder.models.question_answering import WordOrderEncoderForQuestionAnswering
from wordorder.models.seq2seq import WordOrderSeq2SeqModel
from wordorder.models.seq2seq_configuration import WordOrderSeq2SeqConfig

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
    """Tell transformers' Auto classes of every model here."""
    for config, classes in MODELS.items():
        AutoConfig.register(config.model_type, config, exist_ok=True)
        for auto, model in classes.items():
            auto.register(config, model, exist_ok=True)
