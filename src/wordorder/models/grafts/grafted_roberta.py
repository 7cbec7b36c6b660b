"""RoBERTa with an encoding of this package on its scores, as models of their own type; `graft` makes them."""

# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false, reportUnknownMemberType=false
# transformers' heads are typed in part only, and declare what they inherit anew

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import (
    PreTrainedConfig,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForMultipleChoice,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)

from wordorder.models.grafts.grafted import GraftedBody, GraftedHead, settle_graft


@strict
class GraftedRobertaConfig(RobertaConfig):
    """RoBERTa's configuration and what was grafted.

    Args:
        encoding: a name of the catalogue that acts on scores, or several joined by "+".
        encoding_options: options of the encoding; nested by name for several.
        keep_input_positions: RoBERTa's own position embeddings stay.
        wordorder_version: version that wrote the configuration.

    Raises:
        BadInput: one line per fault.
    """

    model_type = "wordorder-grafted-roberta"

    encoding: str = "tupe-r"
    encoding_options: dict[str, Any] | None = None
    keep_input_positions: bool = True
    wordorder_version: str | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Check what is given, then let transformers set the rest."""
        settle_graft(self, longest_text(self), kwargs)
        super().__post_init__(**kwargs)


class GraftedRobertaModel(GraftedBody, RobertaModel):
    """RoBERTa without a head, its scores with an encoding's term.

    RoBERTa's position ids begin at ``pad_token_id + 1``, and its table has as many rows more than the longest text:
    514 for 512 tokens. The encoding counts from 0.
    """

    config: GraftedRobertaConfig
    config_class = GraftedRobertaConfig

    def __init__(self, config: GraftedRobertaConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        self.first_position = first_position(config)

    @classmethod
    def longest(cls, config: PreTrainedConfig) -> int:
        """The longest text that RoBERTa can take, in tokens."""
        return longest_text(config)


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


def first_position(config: PreTrainedConfig) -> int:
    """The position id of a text's first token."""
    return (config.pad_token_id or 0) + 1


def longest_text(config: PreTrainedConfig) -> int:
    """The longest text in tokens: the rows of the table from the first token's on."""
    return config.max_position_embeddings - first_position(config)
