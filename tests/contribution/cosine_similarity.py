"""Cosine similarity: tell how alike two texts are by the angle between their embeddings.

Reimers and Gurevych 2019, "Sentence-BERT", https://arxiv.org/abs/1908.10084, Sec. 3: one encoder reads each text by
itself, and the cosine of the mean states is compared with the label by the squared error.

An example of a task for CONTRIBUTING.md: `tests/test_contribution.py` adds it to a copy of the repository.
"""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from wordorder.data.examples.collate import Collate
from wordorder.data.examples.datasets import LabelledExamples, PreparedData
from wordorder.data.packing import Spans, whole_texts
from wordorder.data.settings import DataSettings
from wordorder.models.configuration import WordOrderEncoderConfig
from wordorder.models.encoder import EncoderHead
from wordorder.models.pretrained import WordOrderPooledOutput, WordOrderSequenceClassifierOutput, body_outputs
from wordorder.tasks.regression import Regression, RegressionOptions
from wordorder.tasks.task import Corpus


class CosineSimilarityOptions(RegressionOptions):
    """Options of `cosine-similarity`, which compares a text with a second one."""

    name: str = "cosine-similarity"

    def faults_with(self, data: DataSettings) -> list[str]:
        """Return a fault where there is no second text."""
        missing = [] if self.pair_column else ["task.pair_column is missing: cosine-similarity compares two texts"]
        return missing + super().faults_with(data)


class CosineSimilarity(Regression):
    """Tell how alike two texts are, from -1 to 1."""

    name = "cosine-similarity"
    Options = CosineSimilarityOptions
    summary = "tells how alike two texts are"
    pipeline = "sentence-similarity"
    head = "ForCosineSimilarity"

    def model_class(self, network: str) -> type[PreTrainedModel] | None:
        """Return the head below, on the encoder."""
        return WordOrderEncoderForCosineSimilarity if network == "encoder" else None

    def label_faults(
        self, labels: Sequence[str], trained: NDArray[np.bool_], data: DataSettings, options: RegressionOptions
    ) -> list[str]:
        """Refuse labels that no cosine can be."""
        faults = super().label_faults(labels, trained, data, options)
        largest = 0.0 if faults else max(map(abs, map(float, labels))) / options.label_scale
        return faults or (
            [f"task.label_column {options.label_column!r}: must lie in -1 .. 1, got {largest:g}; scale it"]
            if largest > 1
            else []
        )

    def prepare(self, corpus: Corpus, options: RegressionOptions, seed: int) -> PreparedData:
        """Return both texts of each pair in one row, `[CLS] text [SEP] [CLS] second [SEP]`, with their numbers."""
        examples: dict[str, LabelledExamples] = {}
        room = corpus.length // 2 - 2
        for name, rows in corpus.parts.items():
            sides = tuple(whole_texts(one[name], room=room) for one in (corpus.tokens, corpus.pair_tokens))
            cls, sep = (corpus.cls_id,), (corpus.sep_id,)
            spans = Spans(sides=sides, before=cls, between=sep + cls, after=sep)
            labels = np.array([float(label) / options.label_scale for label in corpus.labels(name)], np.float32)
            examples[name] = LabelledExamples(spans, labels, np.arange(len(rows)))
        collate = Collate(padding=corpus.id_of("pad"), longest=corpus.length)
        return corpus.prepared(examples, collate, statistics=corpus.statistics(examples))


class WordOrderEncoderForCosineSimilarity(EncoderHead):
    """The encoder as a reader of pairs: the cosine of the mean states of both texts.

    Labels are numbers (B,) from -1 to 1; the loss is the squared error.
    """

    output_class = WordOrderSequenceClassifierOutput

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.post_init()

    def read(self, *texts: Tensor | None, **inputs: Any) -> Any:
        """Return the encoder's output with the two mean states of each row, (B, 2, C), as ``pooler_output``.

        Args:
            *texts: the first four arguments of `forward`; in each row two texts that begin with [CLS].
            **inputs: its other arguments.
        """
        input_ids, attention_mask, *_ = texts
        assert input_ids is not None, "two texts in one row are told apart by [CLS]"
        text_BT = (input_ids == self.config.cls_token_id).cumsum(1)  # neither text sees the other
        output = super().read(*texts, sequence_ids=text_BT, **inputs)
        hidden_BTC = cast(Tensor, output.last_hidden_state)
        present_BT = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        masks = [(text_BT == number) & present_BT.bool() for number in (1, 2)]
        # the sum has the direction of the mean
        sums_B2C = torch.stack([(mask_BT[..., None] * hidden_BTC).sum(1) for mask_BT in masks], dim=1)
        return WordOrderPooledOutput(pooler_output=cast(Any, sums_B2C), **body_outputs(output))

    def predict(
        self, output: Any, attention_mask: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the cosines (B,), and the loss where there are labels."""
        cosine_B = F.cosine_similarity(*output.pooler_output.unbind(1))
        return cosine_B, None if labels is None else F.mse_loss(cosine_B, labels)
