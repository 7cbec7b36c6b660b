"""BERT and RoBERTa with an encoding of this package on their scores, as models of their own types."""

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
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForMultipleChoice,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
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


class _BertHead(GraftedHead):
    config: GraftedBertConfig
    config_class = GraftedBertConfig
    body_class = GraftedBertModel


class GraftedBertForPreTraining(_BertHead, BertForPreTraining):
    """BERT's two pre-training heads: masked tokens and next sentence."""


class GraftedBertForMaskedLM(_BertHead, BertForMaskedLM):
    """BERT's masked language modelling head."""


class GraftedBertForNextSentencePrediction(_BertHead, BertForNextSentencePrediction):
    """BERT's next sentence head."""


class GraftedBertForSequenceClassification(_BertHead, BertForSequenceClassification):
    """BERT's text classification head."""


class GraftedBertForMultipleChoice(_BertHead, BertForMultipleChoice):
    """BERT's multiple choice head."""


class GraftedBertForTokenClassification(_BertHead, BertForTokenClassification):
    """BERT's token classification head."""


class GraftedBertForQuestionAnswering(_BertHead, BertForQuestionAnswering):
    """BERT's span finding head."""


@strict
class GraftedRobertaConfig(GraftFields, RobertaConfig):
    """RoBERTa's configuration and what was grafted."""

    model_type = "wordorder-grafted-roberta"


class GraftedRobertaModel(GraftedBody, RobertaModel):
    """RoBERTa without a head, its scores with an encoding's term.

    RoBERTa's position ids begin at ``pad_token_id + 1``, and its table has as many rows more than the longest text:
    514 for 512 tokens. The encoding counts from 0.
    """

    config: GraftedRobertaConfig
    config_class = GraftedRobertaConfig


class _RobertaHead(GraftedHead):
    config: GraftedRobertaConfig
    config_class = GraftedRobertaConfig
    body_class = GraftedRobertaModel


class GraftedRobertaForMaskedLM(_RobertaHead, RobertaForMaskedLM):
    """RoBERTa's masked language modelling head."""


class GraftedRobertaForSequenceClassification(_RobertaHead, RobertaForSequenceClassification):
    """RoBERTa's text classification head."""


class GraftedRobertaForMultipleChoice(_RobertaHead, RobertaForMultipleChoice):
    """RoBERTa's multiple choice head."""


class GraftedRobertaForTokenClassification(_RobertaHead, RobertaForTokenClassification):
    """RoBERTa's token classification head."""


class GraftedRobertaForQuestionAnswering(_RobertaHead, RobertaForQuestionAnswering):
    """RoBERTa's span finding head."""
