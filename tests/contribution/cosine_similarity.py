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
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from wordorder.data.corpora.document import Document
from wordorder.data.examples.collate import Collate
from wordorder.data.examples.datasets import LabelledExamples, PreparedData
from wordorder.data.examples.encode import EncodedDocuments
from wordorder.data.examples.segments import Segments, cut_in_pieces
from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput
from wordorder.models.configuration import WordOrderEncoderConfig
from wordorder.models.encoder import EncoderHead
from wordorder.models.pretrained import WordOrderPooledOutput, WordOrderSequenceClassifierOutput, body_outputs
from wordorder.tasks.regression import Regression
from wordorder.tasks.task import Corpus


class CosineSimilarity(Regression):
    """Tell how alike two texts are, from -1 to 1."""

    name = "cosine-similarity"
    summary = "tells how alike two texts are"
    pipeline = "sentence-similarity"
    head = "ForCosineSimilarity"

    def model_class(self, network: str) -> type[PreTrainedModel] | None:
        """Return the head below, on the encoder."""
        return WordOrderEncoderForCosineSimilarity if network == "encoder" else None

    def data_faults(self, data: DataSettings) -> list[str]:
        """Return a fault where there is no second text."""
        return [] if data.pair_column else ["data.pair_column is missing: cosine-similarity compares two texts"]

    def check_labels(self, documents: Sequence[Document], data: DataSettings) -> None:
        """Refuse labels that no cosine can be."""
        super().check_labels(documents, data)
        largest = max(abs(float(str(document.label))) for document in documents) / data.label_scale
        if largest > 1:
            raise BadInput(f"data.label_column {data.label_column!r}: must lie in -1 .. 1, got {largest:g}; scale it")

    def prepare(self, corpus: Corpus, seed: int) -> PreparedData:
        """Return both texts of each pair in one row, `[CLS] text [SEP] [CLS] second [SEP]`, with their numbers."""
        examples: dict[str, LabelledExamples] = {}
        for name, part in corpus.parts.items():
            labels = np.array([float(str(document.label)) / corpus.data.label_scale for document in part], np.float32)
            examples[name] = LabelledExamples(_side_by_side(corpus, name), labels, np.arange(len(part)))
        collate = Collate(padding=corpus.id_of("pad"), longest=corpus.length)
        return corpus.prepared(examples, collate, statistics=corpus.statistics(examples))


def _side_by_side(corpus: Corpus, name: str) -> Segments:
    def cut(texts: EncodedDocuments) -> Segments:
        ends: dict[str, Any] = dict(corpus.ends)
        return cut_in_pieces(texts, None, length=corpus.length // 2, max_pieces=1, truncate=True, **ends)[0]

    first, second = cut(corpus.encoded[name]), cut(corpus.encoded_pairs[name])
    sides = [np.split(side.ids, side.starts[1:-1]) for side in (first, second)]
    ids = np.concatenate([text for pair in zip(*sides, strict=True) for text in pair])
    return Segments(ids=ids, starts=first.starts + second.starts)


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
