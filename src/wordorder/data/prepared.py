"""The result of `prepare`: datasets, tokeniser, collator, and the numbers of the corpus."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wordorder.data.examples.collate import Collate, CollateLanes
from wordorder.data.examples.datasets import (
    AnswerExamples,
    CausalLanguageExamples,
    LabelledExamples,
    MaskedLanguageExamples,
    TranslationExamples,
)
from wordorder.data.examples.encode import EncodedDocuments
from wordorder.data.examples.lanes import RunningText
from wordorder.data.quality.reading_log import ReadingLog

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
