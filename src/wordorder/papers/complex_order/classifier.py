"""Text classifiers as Hugging Face models."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.utils.generic import can_return_tuple

from wordorder.models.layout import Layout, check_beside, check_token_types, layout_of
from wordorder.models.pretrained import (
    LabelledHead,
    WordOrderPooledOutput,
    WordOrderPreTrainedModel,
    WordOrderSequenceClassifierOutput,
    classifier_dropout,
    forward_options,
)
from wordorder.networks import Encoder
from wordorder.networks.stack import one_input
from wordorder.ops import Arbitrary
from wordorder.papers.complex_order.configuration import WordOrderClassifierConfig, build_text_network
from wordorder.papers.complex_order.network import TextEmbedding, TextOutput, TextTransformer
from wordorder.papers.complex_order.published_code import ReferenceWords
from wordorder.papers.complex_order.word_vectors import load_word_vectors


class WordOrderClassifierPreTrainedModel(WordOrderPreTrainedModel):
    """The base of the text networks, with a head and without."""

    config: WordOrderClassifierConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    config_class = WordOrderClassifierConfig
    _no_split_modules = ["EncoderLayer"]  # noqa: RUF012  transformers declares these as plain class attributes

    def load_word_vectors(self, path: str | Path, words: Mapping[str, int]) -> int:
        """Start the token embeddings, or the amplitudes in their place, from vectors that were trained elsewhere.

        As `wordorder.papers.complex_order.load_word_vectors`, with ``tokenizer.get_vocab()`` as words.
        """
        return load_word_vectors(cast("Any", self.get_input_embeddings()), path, words)


class WordOrderClassifierModel(WordOrderClassifierPreTrainedModel):
    """A text network without a head: one vector per text."""

    def __init__(self, config: WordOrderClassifierConfig) -> None:
        super().__init__(config)
        self.network = build_text_network(config)
        self.post_init()

    def token_reader(self) -> Encoder | TextEmbedding | ReferenceWords:
        return self.network.encoder if isinstance(self.network, TextTransformer) else self.network.words

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        token_type_ids: Tensor | None = None,
    ) -> WordOrderPooledOutput:
        """Summarise texts, one in each row; see `WordOrderPreTrainedModel` for the other arguments.

        Args:
            attention_mask: a row of zeros is an empty text, whose features are 0.
            position_ids: where the tokens stand; default: each text's tokens from 0. A row is one text, so a 0 begins
                no other; what is said of padding is not read.
            inputs_embeds: encodings that add to embeddings are still applied.
            output_attentions: the Transformer only, as output_hidden_states, which begin with the embeddings.
        """
        check_token_types(token_type_ids, input_ids, inputs_embeds)
        given = one_input(input_ids, inputs_embeds)
        if given.dim() < 2:
            raise ValueError(f"token ids must be integers (batch, tokens), got {given.dtype} {tuple(given.shape)}")
        if given.shape[1] == 0:  # nothing but empty texts: a tokeniser gives (B, 0), of no kind in particular
            given = input_ids = attention_mask = torch.zeros(given.shape[0], 1, dtype=torch.long, device=given.device)
            position_ids = inputs_embeds = None
        layout = _layout(given, attention_mask, position_ids)
        options = forward_options(self.config, output_attentions, output_hidden_states)
        inputs: dict[str, Any] = {**layout.inputs(input_ids, inputs_embeds)}
        if isinstance(self.network, TextTransformer):
            inputs |= options
        elif options["return_attentions"] or options["return_all_hidden"]:
            asked = "output_attentions" if options["return_attentions"] else "output_hidden_states"
            raise ValueError(f"{asked} was asked for, but architecture {self.config.architecture!r} has no such layers")
        output: TextOutput = self.network(**inputs)
        return WordOrderPooledOutput(
            last_hidden_state=cast("Any", layout.turn_back(output.hidden)),
            pooler_output=cast("Any", output.features),
            hidden_states=cast("Any", layout.all_back(output.all_hidden)),
            attentions=cast("Any", layout.all_back(output.attentions, (2, 3))),
        )


class WordOrderClassifierForSequenceClassification(WordOrderClassifierPreTrainedModel, LabelledHead):
    """A text network with an output layer: dropout, linear.

    Labels are class numbers (B,), or numbers, for regression with one label.
    """

    output_class = WordOrderSequenceClassifierOutput

    def __init__(self, config: WordOrderClassifierConfig) -> None:
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"
        self.num_labels = config.num_labels
        self.model = WordOrderClassifierModel(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(self.model.network.features, config.num_labels or 1)
        self.post_init()

    def predict(
        self, output: Any, attention_mask: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits (B, classes), and the loss where there are labels."""
        logits = self.classifier(self.dropout(output.pooler_output))
        if labels is None:
            return logits, None
        twice = self.config.loss == "double-softmax" and self.one_class_each(labels)
        scores = logits.float().softmax(-1) if twice else logits  # of which the loss takes the softmax again
        return logits, self.loss_of_texts(scores, labels, num_items_in_batch)


def _layout(given: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None) -> Layout:
    check_beside(given.device, attention_mask=attention_mask, position_ids=position_ids)
    layout = layout_of((given.shape[0], given.shape[1]), attention_mask, None)
    if position_ids is None:
        return layout
    layout_of((given.shape[0], given.shape[1]), None, position_ids)  # its complaints about shapes and kinds
    position_BT = layout.turn(position_ids.expand(given.shape[0], -1))
    if layout.valid_BT is not None:
        position_BT = position_BT.masked_fill(~layout.valid_BT, 0)
    return Layout(Arbitrary(position_BT), layout.valid_BT, layout.column_BT)
