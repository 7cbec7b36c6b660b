"""Cosine similarity: tell how alike two texts are by the angle between their embeddings.

Reimers and Gurevych 2019, "Sentence-BERT", https://arxiv.org/abs/1908.10084, Sec. 3: one encoder reads each text by
itself, and the cosine of the mean states is compared with the label by the squared error.

An example of a task for CONTRIBUTING.md: `tests/test_contribution.py` adds it to a copy of the repository.
"""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.utils.generic import can_return_tuple

from wordorder.data.corpora.document import Document
from wordorder.data.examples.classification import cut_in_pieces
from wordorder.data.examples.collate import Collate
from wordorder.data.examples.datasets import LabelledExamples
from wordorder.data.examples.encode import EncodedDocuments
from wordorder.data.examples.segments import Segments
from wordorder.data.prepared import PreparedData
from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput
from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.encoder.head import EncoderHead
from wordorder.models.outputs import WordOrderSequenceClassifierOutput, body_outputs
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
        segments = {name: _side_by_side(corpus, name) for name in corpus.parts}
        examples: dict[str, LabelledExamples] = {}
        for name, part in corpus.parts.items():
            labels = np.array([float(str(document.label)) / corpus.data.label_scale for document in part], np.float32)
            examples[name] = LabelledExamples(segments[name], labels, np.arange(len(part)))
        return PreparedData(
            tokenizer=corpus.tokenizer,
            train=examples["train"],
            validation=examples["validation"],
            test=examples.get("test"),
            collate=Collate(padding=corpus.id_of("pad"), longest=corpus.length),
            statistics=corpus.statistics(segments),
        )


def _side_by_side(corpus: Corpus, name: str) -> Segments:
    def cut(texts: EncodedDocuments) -> Segments:
        return cut_in_pieces(texts, None, length=corpus.length // 2, max_pieces=1, truncate=True, **corpus.ends)[0]

    first, second = cut(corpus.encoded[name]), cut(corpus.encoded_pairs[name])
    sides = [np.split(side.ids, side.starts[1:-1]) for side in (first, second)]
    ids = np.concatenate([text for pair in zip(*sides, strict=True) for text in pair])
    return Segments(ids=ids, starts=first.starts + second.starts)


class WordOrderEncoderForCosineSimilarity(EncoderHead):
    """The encoder as a reader of pairs: the cosine of the mean states of both texts.

    Labels are numbers (B,) from -1 to 1; the loss is the squared error.
    """

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **inputs: Any,
    ) -> WordOrderSequenceClassifierOutput:
        """Read pairs and return their similarity as ``logits`` (B,).

        Args:
            input_ids: long (B, T), two texts in each row that begin with [CLS]; neither sees the other.
            attention_mask: (B, T), 1 = token.
            labels: (B,), what should be predicted; with them the output has a loss.
            **inputs: see `WordOrderEncoderModel.forward`.
        """
        text_BT = (input_ids == self.config.cls_token_id).cumsum(1)
        output = self.read(input_ids, attention_mask, None, None, sequence_ids=text_BT, **inputs)
        present_BT = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        one_BC, other_BC = (
            (((text_BT == number) & present_BT.bool())[..., None] * output.last_hidden_state).sum(1)
            for number in (1, 2)  # the sum has the direction of the mean
        )
        cosine_B = F.cosine_similarity(one_BC, other_BC)
        loss = None if labels is None else F.mse_loss(cosine_B, labels.to(cosine_B))
        return WordOrderSequenceClassifierOutput(loss=loss, logits=cosine_B, **body_outputs(output))
