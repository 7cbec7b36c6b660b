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
from wordorder.data.examples.lanes import RunningText
from wordorder.data.examples.masking import IGNORED, Masking
from wordorder.data.examples.order import Example, Key, KeyedExamples, resolve_keys
from wordorder.data.packing import Spans
from wordorder.data.reading_log import ReadingLog
from wordorder.data.tokens import Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def _tokens(spans: Spans, index_B: npt.NDArray[np.int64]) -> list[Tensor]:
    return [torch.as_tensor(spans[number]) for number in index_B.tolist()]


def continued(ids: Tensor) -> Example:
    """Make the example of a causal segment: nothing stands before [CLS], so it is not predicted."""
    labels = ids.clone()
    labels[0] = IGNORED
    return {"input_ids": ids, "labels": labels}


class SpanExamples(KeyedExamples, ABC):
    """Examples of one span each.

    Args:
        documents: index of the document that each begins in, shape (examples,); None: each is one of its own.
    """

    def __init__(self, spans: Spans, documents: npt.NDArray[np.int64] | None = None) -> None:
        self.spans, self._documents = spans, documents

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self.spans.lengths

    @property
    def unit_documents(self) -> npt.NDArray[np.int64]:
        return super().unit_documents if self._documents is None else self._documents

    def __len__(self) -> int:
        return len(self.spans)


class MaskedLanguageExamples(SpanExamples):
    """Spans with tokens masked anew in every epoch, or the same way for ever.

    `examples[(epoch, index)]` has input_ids and labels, both (tokens,); it depends on seed, epoch and index alone.

    Args:
        spans: the tokens, unmasked.
        seed: of the masks.
        padding: id of [PAD].
        fixed: ignore the epoch, so that validation and test are the same exam each time.
    """

    def __init__(
        self,
        spans: Spans,
        masking: Masking,
        *,
        seed: int,
        padding: int,
        fixed: bool = False,
        documents: npt.NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(spans, documents)
        self.masking, self.seed, self.padding, self.fixed = masking, seed, padding, fixed

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        epoch_B, index_B = resolve_keys(keys, len(self))
        ids_BN, present_BN = self.spans.rows(index_B, padding=self.padding)
        epoch_B = epoch_B * 0 if self.fixed else epoch_B
        return self.masking.examples(ids_BN, present_BN, seed=self.seed, epoch_B=epoch_B, index_B=index_B)

    def with_seed(self, seed: int) -> Self:
        found = copy(self)
        found.seed = seed
        return found


class LabelledExamples(SpanExamples):
    """Texts or pieces of texts and their classes, or numbers; nothing is random, so the epoch is ignored.

    `examples[(epoch, index)]` has input_ids (tokens,) and labels, a scalar.

    Args:
        labels: class id (int64) or number (float32) of each, shape (examples,).
        documents: index of the text of each, shape (examples,).
    """

    def __init__(
        self,
        spans: Spans,
        labels: npt.NDArray[np.int64] | npt.NDArray[np.float32],
        documents: npt.NDArray[np.int64],
    ) -> None:
        super().__init__(spans, documents)
        self.labels, self.documents = labels, documents

    @property
    def unit_documents(self) -> npt.NDArray[np.int64]:
        """The index of each text: its pieces are one unit, whose outputs are averaged."""
        return np.arange(int(self.documents.max(initial=-1)) + 1)

    def units_of(self, index_B: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        return self.documents[index_B]

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        _, index_B = resolve_keys(keys, len(self))
        rows = zip(_tokens(self.spans, index_B), torch.as_tensor(self.labels[index_B]), strict=True)
        return [{"input_ids": ids, "labels": label} for ids, label in rows]


class CausalLanguageExamples(SpanExamples):
    """Running text in segments, each token predicted from those before it; nothing is random, so the epoch is ignored.

    `examples[(epoch, index)]` has input_ids and labels, both (tokens,): labels are input_ids, but for -100 at [CLS],
    which nothing stands before. The model compares its output at one place with the label at the next.

    Args:
        spans: of running text, [CLS] before each.
        text: the same text without segments, for other ways to score it.
    """

    def __init__(self, spans: Spans, text: RunningText) -> None:
        super().__init__(spans)
        self.text, self.characters, self.words = text, text.characters, text.words
        self.predicted = text.predicted

    @property
    def unit_documents(self) -> npt.NDArray[np.int64]:
        return self.text.unit_documents

    def units_of(self, index_B: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        """Return the units of the labels of each span, (B, width); that of [CLS] is not predicted."""
        return self.text.units_at(self.spans.sides[0].first[index_B][:, None] + np.arange(width) - 1)

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        _, index_B = resolve_keys(keys, len(self))
        return [continued(ids) for ids in _tokens(self.spans, index_B)]


class AnswerExamples(SpanExamples):
    """Texts with their answers, of which the answer alone is predicted; nothing is random, so the epoch is ignored.

    `examples[(epoch, index)]` has input_ids, `[CLS] text [SEP] answer [SEP]`, and labels, both (tokens,): labels are
    input_ids at the answer, and else -100.

    Args:
        spans: of texts and answers.
        ends: the last [SEP] is predicted too, since it says where the answer ends.
    """

    predicted = True

    def __init__(self, spans: Spans, *, ends: bool) -> None:
        super().__init__(spans)
        self._ends = ends

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        _, index_B = resolve_keys(keys, len(self))
        lengths = self.spans.sides[1].lengths[index_B].tolist()
        return [self._example(ids, n) for ids, n in zip(_tokens(self.spans, index_B), lengths, strict=True)]

    def _example(self, ids: Tensor, length: int) -> Example:
        labels = torch.full_like(ids, IGNORED)
        answer = slice(len(ids) - 1 - length, len(ids) if self._ends else -1)
        labels[answer] = ids[answer]
        return {"input_ids": ids, "labels": labels}


class TranslationExamples(KeyedExamples):
    """Sentences and their translations; nothing is random, so the epoch is ignored.

    `examples[(epoch, index)]` has input_ids (source tokens,) and labels (target tokens,).

    Args:
        sources: `[CLS] source [SEP]`, as the tokeniser writes a single text.
        targets: `target [SEP]`: what the decoder predicts. It is fed `[CLS] target`, which the model makes by shifting.
        references: the target sentences as people wrote them, whole also where their tokens are cut: what translations
            are compared with.
    """

    def __init__(self, sources: Spans, targets: Spans, references: Sequence[str]) -> None:
        self.sources, self.targets, self.references = sources, targets, references

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self.sources.lengths + self.targets.lengths

    @property
    def source_lengths(self) -> npt.NDArray[np.int64]:
        return self.sources.lengths

    def __len__(self) -> int:
        return len(self.sources)

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        _, index_B = resolve_keys(keys, len(self))
        sides = zip(_tokens(self.sources, index_B), _tokens(self.targets, index_B), strict=True)
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
    reported: Tokens | None = None
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
    hash that differs when any text, class or token of any split does (the run's seed has no part). For classification
    and tasks of few answers each split has classes too, how often each of the most frequent is there. For translation
    these count the sources, dropped_empty the pairs with an empty side, segments the pairs that are used; and beside
    them there are target_characters, target_words, target_tokens, target_unknown_fraction, dropped_long (pairs left out
    because a side is too long) and cut (pairs that lost an end)."""
    log: ReadingLog = field(default_factory=ReadingLog)
    """Log of what was passed over while the texts were read."""
