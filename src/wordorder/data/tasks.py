"""Make the datasets of each task from encoded splits."""

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wordorder.data.classification import cut_in_pieces, label_names
from wordorder.data.collate import Collate, CollateLanes, CollatePairs
from wordorder.data.config import LANES, DataConfig
from wordorder.data.corpora import Document
from wordorder.data.encoded import EncodedDocuments
from wordorder.data.examples import (
    CausalLanguageExamples,
    LabelledExamples,
    MaskedLanguageExamples,
    TranslationExamples,
)
from wordorder.data.lanes import RunningText, running_text
from wordorder.data.masking import Masking
from wordorder.data.prepared import PreparedData
from wordorder.data.segments import PACKINGS, Segments, pack_running_text, with_something_to_predict
from wordorder.data.split import Split
from wordorder.data.statistics import fingerprint, split_statistics, target_statistics
from wordorder.data.streaming import TextStream
from wordorder.data.tokenisers import adds_special_tokens, pair_separators
from wordorder.data.translation import join_pairs
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Data that all tasks share: documents and tokens of each split, the tokeniser and its special tokens."""

    data: DataConfig
    length: int
    tokenizer: "PreTrainedTokenizerFast"
    parts: dict[str, list[Document]]
    encoded: dict[str, EncodedDocuments]
    encoded_pairs: dict[str, EncodedDocuments]
    special: "np.ndarray[Any, np.dtype[np.bool_]]"
    dropped_empty: int

    stream: Callable[[Masking | None, int], TextStream] | None = None
    """Makes the training text, from the masking and its seed, where it is streamed; then `parts` has no "train"."""

    @property
    def ends(self) -> dict[str, int]:
        return {"cls_id": _id(self.tokenizer.cls_token_id), "sep_id": _id(self.tokenizer.sep_token_id)}


def _id(value: Any) -> int:
    assert isinstance(value, int), "load_tokenizer refuses a tokeniser without this special token"
    return value


def _prepare_masked_lm(work: Work, split: Split, seed: int) -> PreparedData:
    segments = {name: _segments(work, name) for name in work.parts}
    masking = Masking(
        probability=work.data.mask_probability, mask_id=_id(work.tokenizer.mask_token_id), special=work.special
    )
    padding = _id(work.tokenizer.pad_token_id)
    # Test masks are not validation's: the seeds differ, and both differ from a training seed of the same number.
    mask_seeds = {"train": 3 * seed, "validation": 3 * work.data.seed + 1, "test": 3 * work.data.seed + 2}
    examples = {
        name: MaskedLanguageExamples(
            segments[name], masking, seed=mask_seeds[name], padding=padding, fixed=name != "train"
        )
        for name in work.parts
    }
    return PreparedData(
        tokenizer=work.tokenizer,
        train=examples["train"] if work.stream is None else work.stream(masking, mask_seeds["train"]),
        validation=examples["validation"],
        test=examples.get("test"),
        collate=Collate(padding=padding, longest=work.length),
        statistics=_statistics(work, split, segments),
    )


def _segments(work: Work, name: str) -> Segments:
    segments = PACKINGS[work.data.packing](work.encoded[name], length=work.length, **work.ends)
    segments = with_something_to_predict(work.special, segments)
    if not len(segments) or (name == "train" and len(work.encoded[name].ids) < work.length - 2):
        raise BadInput(
            f"data.source {work.data.source}: {name} has {len(work.encoded[name].ids)} tokens, "
            f"less than one segment of data.length {work.length}; give more text or a smaller length"
        )
    return segments


def _prepare_causal_lm(work: Work, split: Split, seed: int) -> PreparedData:
    if work.stream is None and len(work.encoded["train"].ids) < work.length - 1:
        raise BadInput(
            f"data.source {work.data.source}: train has {len(work.encoded['train'].ids)} tokens, less than one segment "
            f"of data.length {work.length}; give more text or a smaller length"
        )
    in_lanes, padding = work.data.packing == LANES, _id(work.tokenizer.pad_token_id)
    # a segment that begins with [CLS] has room for one token less
    texts = {name: _running_text(work, name, work.length - (not in_lanes)) for name in work.parts}
    segments = {name: pack_running_text(work.encoded[name], length=work.length, **work.ends) for name in work.parts}
    examples: dict[str, Any] = texts
    if not in_lanes:
        examples = {name: CausalLanguageExamples(segments[name], text) for name, text in texts.items()}
    return PreparedData(
        tokenizer=work.tokenizer,
        train=examples["train"] if work.stream is None else work.stream(None, 0),
        validation=examples["validation"],
        test=examples.get("test"),
        collate=CollateLanes(padding=padding) if in_lanes else Collate(padding=padding, longest=work.length),
        statistics=_statistics(work, split, texts if in_lanes else segments),
    )


def _running_text(work: Work, name: str, length: int) -> RunningText:
    texts = [document.text for document in work.parts[name]]
    return running_text(
        work.encoded[name],
        sep_id=work.ends["sep_id"],
        length=length,
        characters=sum(map(len, texts)),
        words=sum(len(text.split()) for text in texts),
        by_document=work.data.reset_memory == "documents",
        eval_lanes=work.data.eval_lanes,
        roll=work.data.roll,
    )


def _prepare_translation(work: Work, split: Split, seed: int) -> PreparedData:
    pairs = {
        name: join_pairs(
            work.encoded[name],
            work.encoded_pairs[name],
            length=work.length,
            # What is scored is the same whatever the length; training gains nothing from halves of sentences.
            drop_long=name == "train" and not work.data.truncate,
            **work.ends,
        )
        for name in work.parts
    }
    if not len(pairs["train"].kept):
        raise BadInput(
            f"data.source {work.data.source}: all {len(work.parts['train'])} training pairs are longer than data.length"
            f" {work.length}; raise it, or set data.truncate=true"
        )
    examples = {
        name: TranslationExamples(pairs[name], [part[int(number)].pair or "" for number in pairs[name].kept])
        for name, part in work.parts.items()
    }
    statistics = _statistics(work, split, {name: found.sources for name, found in pairs.items()})
    for name, found in pairs.items():
        statistics[name] |= target_statistics(
            work.parts[name], work.encoded_pairs[name], found, unknown_id=work.tokenizer.unk_token_id
        )
    return PreparedData(
        tokenizer=work.tokenizer,
        train=examples["train"],
        validation=examples["validation"],
        test=examples.get("test"),
        collate=CollatePairs(padding=_id(work.tokenizer.pad_token_id), longest=work.length),
        statistics=statistics,
    )


def _prepare_classification(work: Work, split: Split, seed: int) -> PreparedData:
    names = label_names({str(document.label) for part in work.parts.values() for document in part})
    return _prepare_labelled(work, split, lambda label: names.index(label), np.int64, names)


def _prepare_regression(work: Work, split: Split, seed: int) -> PreparedData:
    # float32 as the model's output: transformers' loss takes no other pair of types
    return _prepare_labelled(work, split, lambda label: float(label) / work.data.label_scale, np.float32, ())


def _prepare_labelled(
    work: Work, split: Split, value_of: Callable[[str], float], dtype: type[np.generic], names: tuple[str, ...]
) -> PreparedData:
    segments: dict[str, Segments] = {}
    examples: dict[str, LabelledExamples] = {}
    for name, part in work.parts.items():
        segments[name], owners = cut_in_pieces(
            work.encoded[name],
            work.encoded_pairs.get(name),
            length=work.length,
            max_pieces=work.data.max_pieces,
            truncate=work.data.truncate,
            separators=pair_separators(work.tokenizer),
            add_special_tokens=adds_special_tokens(work.tokenizer),
            unknown_id=None if work.tokenizer.unk_token_id is None else _id(work.tokenizer.unk_token_id),
            **work.ends,
        )
        labels: Any = np.array([value_of(str(document.label)) for document in part], dtype)
        examples[name] = LabelledExamples(segments[name], labels[owners], owners)
    return PreparedData(
        tokenizer=work.tokenizer,
        train=examples["train"],
        validation=examples["validation"],
        test=examples.get("test"),
        label_names=names,
        collate=Collate(padding=_id(work.tokenizer.pad_token_id), longest=work.length),
        statistics=_statistics(work, split, segments),
    )


TASKS: dict[str, Callable[[Work, Split, int], PreparedData]] = {
    "masked-lm": _prepare_masked_lm,
    "causal-lm": _prepare_causal_lm,
    "classification": _prepare_classification,
    "regression": _prepare_regression,
    "translation": _prepare_translation,
}


def _statistics(work: Work, split: Split, segments: Mapping[str, Sized]) -> dict[str, Any]:
    """Return the numbers of all splits; see `PreparedData.statistics`."""
    unknown = work.tokenizer.unk_token_id
    counts = {
        name: split_statistics(part, work.encoded[name], examples=len(segments[name]), unknown_id=unknown)
        for name, part in work.parts.items()
    }
    return {
        **counts,
        "dropped_duplicates": split.dropped_duplicates,
        "dropped_empty": work.dropped_empty,
        "vocab_size": len(work.special),
        "fingerprint": fingerprint(work.parts, work.encoded, work.encoded_pairs),
    }
