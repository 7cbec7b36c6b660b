"""RoBERTa with an encoding of this package on its scores, as models of their own type, which `graft` builds."""

# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false, reportUnknownMemberType=false
# transformers' heads are typed in part only, and declare what they inherit anew

from huggingface_hub.dataclasses import strict
from transformers import (
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


class _Head(GraftedHead):
    config: GraftedRobertaConfig
    config_class = GraftedRobertaConfig
    body_class = GraftedRobertaModel


class GraftedRobertaForMaskedLM(_Head, RobertaForMaskedLM):
    """RoBERTa's masked language modelling head."""


class GraftedRobertaForSequenceClassification(_Head, RobertaForSequenceClassification):
    """RoBERTa's text classification head."""


class GraftedRobertaForMultipleChoice(_Head, RobertaForMultipleChoice):
    """RoBERTa's multiple choice head."""


class GraftedRobertaForTokenClassification(_Head, RobertaForTokenClassification):
    """RoBERTa's token classification head."""


class GraftedRobertaForQuestionAnswering(_Head, RobertaForQuestionAnswering):
    """RoBERTa's span finding head."""
