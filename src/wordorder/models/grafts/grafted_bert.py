"""BERT with an encoding of this package on its scores, as models of their own type; `graft` makes them."""

# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false, reportUnknownMemberType=false
# transformers' heads are typed in part only, and declare what they inherit anew

from typing import Any

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

from wordorder.models.grafts.grafted import GraftedBody, GraftedHead, settle_graft


@strict
class GraftedBertConfig(BertConfig):
    """BERT's configuration and what was grafted.

    Args:
        encoding: a name of the catalogue that acts on scores, or several joined by "+".
        encoding_options: options of the encoding; nested by name for several.
        keep_input_positions: BERT's own position embeddings stay.
        wordorder_version: version that wrote the configuration.

    Raises:
        BadInput: one line per fault.
    """

    model_type = "wordorder-grafted-bert"

    encoding: str = "tupe-r"
    encoding_options: dict[str, Any] | None = None
    keep_input_positions: bool = True
    wordorder_version: str | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Check what is given, then let transformers set the rest."""
        settle_graft(self, self.max_position_embeddings, kwargs)
        super().__post_init__(**kwargs)


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
