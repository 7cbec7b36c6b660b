"""Map-style torch datasets over prepared examples; `collate.py` makes batches of them."""

from abc import ABC
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wordorder.data.examples.collate import Collate, CollateLanes
from wordorder.data.examples.encode import EncodedDocuments
from wordorder.data.examples.lanes import RunningText
from wordorder.data.examples.masking import IGNORED, Masking
from wordorder.data.examples.order import Example, Key, KeyedExamples, resolve_keys
from wordorder.data.examples.segments import Segments, SentencePairs, framed
from wordorder.data.reading_log import ReadingLog

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def _tokens(segments: Segments, index_B: npt.NDArray[np.int64]) -> list[Tensor]:
    rows = [segments[number] for number in index_B.tolist()]
    together = torch.as_tensor(np.concatenate(rows).astype(np.int64))
    return list(torch.split(together, [len(ids) for ids in rows]))


def continued(ids: Tensor) -> Example:
    """Make the example of a causal segment: nothing stands before [CLS], so it is not predicted."""
    labels = ids.clone()
    labels[0] = IGNORED
    return {"input_ids": ids, "labels": labels}


class SegmentExamples(KeyedExamples, ABC):
    """Examples of one segment each.

    Args:
        documents: index of the document that each begins in, shape (examples,); None: each is one of its own.
    """

    def __init__(self, segments: Segments, documents: npt.NDArray[np.int64] | None = None) -> None:
        self.segments, self._documents = segments, documents

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self.segments.lengths

    @property
    def unit_documents(self) -> npt.NDArray[np.int64]:
        return super().unit_documents if self._documents is None else self._documents

    def __len__(self) -> int:
        return len(self.segments)


class MaskedLanguageExamples(SegmentExamples):
    """Segments with tokens masked anew in every epoch, or the same way for ever.

    `examples[(epoch, index)]` has input_ids and labels, both (tokens,); it depends on seed, epoch and index alone.

    Args:
        segments: the segments, unmasked.
        seed: of the masks.
        padding: id of [PAD].
        fixed: ignore the epoch, so that validation and test are the same exam each time.
    """

    def __init__(
        self,
        segments: Segments,
        masking: Masking,
        *,
        seed: int,
        padding: int,
        fixed: bool = False,
        documents: npt.NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(segments, documents)
        self.masking, self.seed, self.padding, self.fixed = masking, seed, padding, fixed

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        epoch_B, index_B = resolve_keys(keys, len(self))
        ids_BN, present_BN = self.segments.rows(index_B, padding=self.padding)
        epoch_B = epoch_B * 0 if self.fixed else epoch_B
        return self.masking.examples(ids_BN, present_BN, seed=self.seed, epoch_B=epoch_B, index_B=index_B)

    def with_seed(self, seed: int) -> Self:
        found = copy(self)
        found.seed = seed
        return found


class LabelledExamples(SegmentExamples):
    """Texts and their classes, or numbers; nothing is random, so the epoch is ignored.

    `examples[(epoch, index)]` has input_ids (tokens,) and labels, a scalar.

    Args:
        labels: class id (int64) or number (float32) of each, shape (examples,).
    """

    def __init__(
        self,
        segments: Segments,
        labels: npt.NDArray[np.int64] | npt.NDArray[np.float32],
        documents: npt.NDArray[np.int64],
    ) -> None:
        super().__init__(segments, documents)
        self.labels, self.documents = labels, documents

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        _, index_B = resolve_keys(keys, len(self))
        rows = zip(_tokens(self.segments, index_B), torch.as_tensor(self.labels[index_B]), strict=True)
        return [{"input_ids": ids, "labels": label} for ids, label in rows]


class CausalLanguageExamples(SegmentExamples):
    """Running text in segments, each token predicted from those before it; nothing is random, so the epoch is ignored.

    `examples[(epoch, index)]` has input_ids and labels, both (tokens,): labels are input_ids, but for -100 at [CLS],
    which nothing stands before. The model compares its output at one place with the label at the next.

    Args:
        segments: from `CausalSegments`.
        text: the same text without segments, for other ways to score it.
    """

    def __init__(self, segments: Segments, text: RunningText) -> None:
        super().__init__(segments)
        self.text, self.characters, self.words = text, text.characters, text.words
        self.predicted = text.predicted

    @property
    def unit_documents(self) -> npt.NDArray[np.int64]:
        return self.text.unit_documents

    def units_of(self, index_B: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        """Return the units of the labels of each segment, (B, width); that of [CLS] is not predicted."""
        before_B = self.segments.starts[index_B] - index_B  # tokens of the text in the segments before
        return self.text.units_at(before_B[:, None] + np.arange(width) - 1)

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        _, index_B = resolve_keys(keys, len(self))
        return [continued(ids) for ids in _tokens(self.segments, index_B)]


class AnswerExamples(SegmentExamples):
    """Texts with their answers, of which the answer alone is predicted; nothing is random, so the epoch is ignored.

    `examples[(epoch, index)]` has input_ids, `[CLS] text [SEP] answer [SEP]`, and labels, both (tokens,): labels are
    input_ids where `predicted` says so, and else -100.

    Args:
        documents: `text [SEP] answer` each, and
        predicted: True for each token of them in a row that is predicted, as `join_answers` gives both.
    """

    def __init__(
        self, documents: EncodedDocuments, predicted: npt.NDArray[np.bool_], *, cls_id: int, sep_id: int
    ) -> None:
        borders = documents.borders
        super().__init__(framed(documents.ids, borders[:-1], borders[1:], cls_id=cls_id, sep_id=sep_id))
        # each document has a [SEP] more in a row, and its [CLS] is not predicted
        self.predicted = np.insert(predicted, borders[:-1] + np.arange(len(documents)), False)

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        _, index_B = resolve_keys(keys, len(self))
        return [self._example(slice(*self.segments.starts[index : index + 2])) for index in index_B.tolist()]

    def _example(self, span: slice) -> Example:
        ids = self.segments.ids[span].astype(np.int64)
        labels = np.where(self.predicted[span], ids, IGNORED)
        return {"input_ids": torch.as_tensor(ids), "labels": torch.as_tensor(labels)}


class TranslationExamples(KeyedExamples):
    """Sentences and their translations; nothing is random, so the epoch is ignored.

    `examples[(epoch, index)]` has input_ids (source tokens,) and labels (target tokens,).

    Args:
        texts: the target sentences as people wrote them, one for each pair, whole also where its tokens are cut: what
            translations are compared with.
    """

    def __init__(self, pairs: SentencePairs, texts: Sequence[str]) -> None:
        self.pairs, self.texts = pairs, texts

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self.pairs.sources.lengths + self.pairs.targets.lengths

    @property
    def source_lengths(self) -> npt.NDArray[np.int64]:
        return self.pairs.sources.lengths

    def __len__(self) -> int:
        return len(self.pairs.kept)

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        _, index_B = resolve_keys(keys, len(self))
        sides = zip(_tokens(self.pairs.sources, index_B), _tokens(self.pairs.targets, index_B), strict=True)
        return [{"input_ids": source, "labels": target} for source, target in sides]


Examples = (
    MaskedLanguageExamples
    | LabelledExamples
    | CausalLanguageExamples
    | AnswerExamples
    | TranslationExamples
    | RunningText
)
"""Data sets; a `RunningText` becomes one when it is divided into lanes or windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedData:
    """All that training and evaluation need to know about the data."""

    tokenizer: "PreTrainedTokenizerFast"
    train: Examples
    validation: Examples
    test: Examples | None
    """None where data.test_source is "none"."""
    collate: Collate | CollateLanes
    reported: EncodedDocuments | None = None
    """The tokens of the texts of `test`, or of `validation` where there is no test, document by document: for other
    ways to read them than the examples have. `prepare` always gives them."""
    reported_lengths: tuple[int, ...] = ()
    """Length of each of these texts, as the generated task counts it; empty for texts that are read."""
    label_names: tuple[str, ...] = ()
    """Classes in the order of their ids; empty for the other tasks."""
    statistics: dict[str, Any] = field(default_factory=dict[str, Any])
    """For each of train, validation and test that there is: documents, characters, words (by white space), tokens
    (without special ones), segments (examples), unknown_fraction (share of tokens that are [UNK]),
    without_tokens (documents of which the tokeniser leaves nothing); and dropped_duplicates, dropped_empty (rows
    without text), left_out (files of a folder or glob that are not read, by ending), vocab_size, and fingerprint, a
    hash that differs when any text, class or token of any split does (the run's seed has no part). For translation
    these count the sources, dropped_empty the pairs with an empty side, segments the pairs that are used; and beside
    them there are target_characters, target_words, target_tokens, target_unknown_fraction, dropped_long (pairs left out
    because a side is too long) and cut (pairs that lost an end)."""
    log: ReadingLog = field(default_factory=ReadingLog)
    """Log of what was passed over while the texts were read."""
