"""BERT with an encoding of this package on its scores, as models of their own type, which `graft` builds."""

# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false, reportUnknownMemberType=false
# transformers' heads are typed in part only, and declare what they inherit anew

from huggingface_hub.dataclasses import strict
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

from wordorder.models.grafts.grafted import GraftedBody, GraftedHead, GraftFields


@strict
class GraftedBertConfig(GraftFields, BertConfig):
    """BERT's configuration and what was grafted."""

    model_type = "wordorder-grafted-bert"


class GraftedBertModel(GraftedBody, BertModel):
    """BERT without a head, its scores with an encoding's term."""

    config: GraftedBertConfig
    config_class = GraftedBertConfig


class _Head(GraftedHead):
    config: GraftedBertConfig
    config_class = GraftedBertConfig
    body_class = GraftedBertModel


class GraftedBertForPreTraining(_Head, BertForPreTraining):
    """BERT's two pre-training heads: masked tokens and next sentence."""


class GraftedBertForMaskedLM(_Head, BertForMaskedLM):
    """BERT's masked language modelling head."""


class GraftedBertForNextSentencePrediction(_Head, BertForNextSentencePrediction):
    """BERT's next sentence head."""


class GraftedBertForSequenceClassification(_Head, BertForSequenceClassification):
    """BERT's text classification head."""


class GraftedBertForMultipleChoice(_Head, BertForMultipleChoice):
    """BERT's multiple choice head."""


class GraftedBertForTokenClassification(_Head, BertForTokenClassification):
    """BERT's token classification head."""


class GraftedBertForQuestionAnswering(_Head, BertForQuestionAnswering):
    """BERT's span finding head."""
