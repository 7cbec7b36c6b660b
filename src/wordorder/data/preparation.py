"""From a recipe's `[data]` and `[tokenizer]` to datasets that a trainer can use."""

import sys
from collections.abc import Callable, Generator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordorder.data.cache import content_hash, default_cache_dir
from wordorder.data.classification import cut_in_pieces, label_names
from wordorder.data.config import LANES, DataConfig, TokenizerConfig, token_faults
from wordorder.data.corpora import Document
from wordorder.data.corpora.read import read_and_count
from wordorder.data.encode import EncodedDocuments, encode_documents
from wordorder.data.examples import (
    CausalLanguageExamples,
    Collate,
    CollatePairs,
    LabelledExamples,
    MaskedLanguageExamples,
    TranslationExamples,
)
from wordorder.data.lanes import CollateLanes, RunningText, running_text
from wordorder.data.masking import Masking
from wordorder.data.segments import PACKINGS, Segments, keep, pack_running_text
from wordorder.data.split import Split, split_documents
from wordorder.data.tokenisers import adds_special_tokens, load_tokenizer, pair_separators
from wordorder.data.translation import SentencePairs, join_pairs
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Examples = MaskedLanguageExamples | LabelledExamples | CausalLanguageExamples | TranslationExamples | RunningText
"""Data sets; a `RunningText` becomes one when it is divided into lanes or windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedData:
    """All that training and evaluation need to know about the data."""

    tokenizer: "PreTrainedTokenizerFast"
    train: Examples
    validation: Examples
    test: Examples | None
    """None where data.test_source is "none"."""
    collate: Collate | CollatePairs | CollateLanes
    reported: EncodedDocuments | None = None
    """The tokens of the texts of `test`, or of `validation` where there is no test, document by document: for other
    ways to read them than the examples have. `prepare` always gives them."""
    label_names: tuple[str, ...] = ()
    """Classes in the order of their ids; empty for the other tasks."""
    statistics: dict[str, Any] = field(default_factory=dict[str, Any])
    """For each of train, validation and test that there is: documents, characters, words (by white space), tokens
    (without special ones), segments (examples), unknown_fraction (share of tokens that are [UNK]),
    without_tokens (documents of which the tokeniser leaves nothing); and dropped_duplicates, dropped_empty (rows
    without text), vocab_size, and fingerprint, a hash that differs when any text, class or token of any split does (the
    run's seed has no part). For translation these count the sources, dropped_empty the pairs with an empty side,
    segments the pairs that are used; and beside them there are target_characters, target_words, target_tokens,
    target_unknown_fraction, dropped_long (pairs left out because a side is too long) and cut (pairs that lost an
    end)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What the tasks share on the way from documents to datasets."""

    data: DataConfig
    length: int
    tokenizer: "PreTrainedTokenizerFast"
    parts: dict[str, list[Document]]
    encoded: dict[str, EncodedDocuments]
    encoded_pairs: dict[str, EncodedDocuments]
    special: "np.ndarray[Any, np.dtype[np.bool_]]"
    dropped_empty: int

    @property
    def ends(self) -> dict[str, int]:
        return {"cls_id": _id(self.tokenizer.cls_token_id), "sep_id": _id(self.tokenizer.sep_token_id)}


def prepare(data: DataConfig, tokenizer: TokenizerConfig, *, seed: int, cache_dir: Path | None = None) -> PreparedData:
    """Read, split, train the tokeniser on train alone, encode, and make the datasets.

    Args:
        data: the corpus and the task; its length must be set.
        tokenizer: the tokeniser.
        seed: the run's seed, of the training masks. The split and the masks of validation and test come from data.seed.
        cache_dir: where trained tokenisers and encoded texts are kept; None: $WORDORDER_CACHE or ~/.cache/wordorder.

    Raises:
        BadInput: one line per fault of the data; nothing was written but the cache.
        MissingExtra: a package that the source or the tokeniser needs is not installed.
    """
    if data.length is None:
        raise BadInput("data.length is not set: give the tokens per example")
    faults = token_faults(data, tokenizer)
    if faults:
        raise BadInput(faults)
    cache_dir = default_cache_dir() if cache_dir is None else cache_dir
    documents, dropped_empty = read_and_count(data)
    split = split_documents(documents, data)
    parts = {name: part for name, part in split.parts().items() if part}
    texts = [text for d in split.train for text in (d.text, d.pair) if text]
    trained = load_tokenizer(tokenizer, texts, cache_dir=cache_dir)
    if data.packing != LANES:  # a text in lanes may be of any length
        trained.model_max_length = data.length
    with _progress("Encoding") as progress:
        encoded = {
            name: encode_documents([d.text for d in part], trained, cache_dir=cache_dir, progress=progress)
            for name, part in parts.items()
        }
        encoded_pairs = {
            name: encode_documents([d.pair or "" for d in part], trained, cache_dir=cache_dir, progress=progress)
            for name, part in (parts.items() if data.pair_column or data.task == "translation" else ())
        }
    work = _Work(
        data=data,
        length=data.length,
        tokenizer=trained,
        parts=parts,
        encoded=encoded,
        encoded_pairs=encoded_pairs,
        special=_special(trained),
        dropped_empty=dropped_empty,
    )
    prepared = replace(_TASKS[data.task](work, split, seed), reported=encoded["test" if split.test else "validation"])
    # one object, so that whoever scores all parts does not score this one twice
    return replace(prepared, validation=prepared.test) if split.validation is split.test else prepared


def _prepare_masked_lm(work: _Work, split: Split, seed: int) -> PreparedData:
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
        train=examples["train"],
        validation=examples["validation"],
        test=examples.get("test"),
        collate=Collate(padding=padding, longest=work.length),
        statistics=_statistics(work, split, segments),
    )


def _segments(work: _Work, name: str) -> Segments:
    segments = PACKINGS[work.data.packing](work.encoded[name], length=work.length, **work.ends)
    ordinary = np.add.reduceat(~work.special[segments.ids], segments.starts[:-1]) if len(segments) else np.empty(0)
    segments = keep(segments, ordinary > 0)  # a segment of [UNK] alone has nothing to predict
    if not len(segments) or (name == "train" and len(work.encoded[name].ids) < work.length - 2):
        raise BadInput(
            f"data.source {work.data.source}: {name} has {len(work.encoded[name].ids)} tokens, "
            f"less than one segment of data.length {work.length}; give more text or a smaller length"
        )
    return segments


def _prepare_causal_lm(work: _Work, split: Split, seed: int) -> PreparedData:
    if len(work.encoded["train"].ids) < work.length - 1:
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
        train=examples["train"],
        validation=examples["validation"],
        test=examples.get("test"),
        collate=CollateLanes(padding=padding) if in_lanes else Collate(padding=padding, longest=work.length),
        statistics=_statistics(work, split, texts if in_lanes else segments),
    )


def _running_text(work: _Work, name: str, length: int) -> RunningText:
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


def _prepare_translation(work: _Work, split: Split, seed: int) -> PreparedData:
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
        statistics[name] |= _target_statistics(work, name, found)
    return PreparedData(
        tokenizer=work.tokenizer,
        train=examples["train"],
        validation=examples["validation"],
        test=examples.get("test"),
        collate=CollatePairs(padding=_id(work.tokenizer.pad_token_id), longest=work.length),
        statistics=statistics,
    )


def _target_statistics(work: _Work, name: str, pairs: SentencePairs) -> dict[str, float | int]:
    texts, ids = [str(document.pair) for document in work.parts[name]], work.encoded_pairs[name].ids
    return {
        "target_characters": sum(map(len, texts)),
        "target_words": sum(len(text.split()) for text in texts),
        "target_tokens": len(ids),
        "target_unknown_fraction": float((ids == work.tokenizer.unk_token_id).sum()) / max(1, len(ids)),
        "dropped_long": len(texts) - len(pairs.kept),
        "cut": pairs.cut,
    }


def _prepare_classification(work: _Work, split: Split, seed: int) -> PreparedData:
    names = label_names({str(document.label) for part in work.parts.values() for document in part})
    return _prepare_labelled(work, split, lambda label: names.index(label), np.int64, names)


def _prepare_regression(work: _Work, split: Split, seed: int) -> PreparedData:
    # float32 as the model's output: transformers' loss takes no other pair of types
    return _prepare_labelled(work, split, lambda label: float(label) / work.data.label_scale, np.float32, ())


def _prepare_labelled(
    work: _Work, split: Split, value_of: Callable[[str], float], dtype: type[np.generic], names: tuple[str, ...]
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


_TASKS: dict[str, Callable[[_Work, Split, int], PreparedData]] = {
    "masked-lm": _prepare_masked_lm,
    "causal-lm": _prepare_causal_lm,
    "classification": _prepare_classification,
    "regression": _prepare_regression,
    "translation": _prepare_translation,
}


def _statistics(work: _Work, split: Split, segments: Mapping[str, Sized]) -> dict[str, Any]:
    unknown = work.tokenizer.unk_token_id
    counts = {
        name: {
            "documents": len(part),
            "characters": sum(len(document.text) for document in part),
            "words": sum(len(document.text.split()) for document in part),
            "tokens": len(work.encoded[name].ids),
            "segments": len(segments[name]),
            "unknown_fraction": float((work.encoded[name].ids == unknown).sum()) / max(1, len(work.encoded[name].ids)),
            "without_tokens": sum(not len(work.encoded[name].tokens(number)) for number in range(len(part))),
        }
        for name, part in work.parts.items()
    }
    return {
        **counts,
        "dropped_duplicates": split.dropped_duplicates,
        "dropped_empty": work.dropped_empty,
        "vocab_size": len(work.special),
        "fingerprint": _fingerprint(work),
    }


def _fingerprint(work: _Work) -> str:
    """Name the content of all splits: texts, classes and tokens, so that the tokeniser counts too."""

    def contents() -> Generator[str | bytes]:
        for name, part in work.parts.items():
            yield name
            for document in part:
                yield from (document.text, document.label or "", document.pair or "")
            for encoded in (work.encoded, work.encoded_pairs):
                if name in encoded:
                    yield encoded[name].ids.tobytes()

    return content_hash(contents())


def _special(tokenizer: "PreTrainedTokenizerFast") -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Return True for ids that text never has: special tokens, and numbers that an existing tokeniser skips."""
    known = list(tokenizer.get_vocab().values())
    special = np.ones(max(known) + 1, np.bool_)
    special[known] = False
    special[tokenizer.all_special_ids] = True
    return special


def _id(value: Any) -> int:
    assert isinstance(value, int), "load_tokenizer refuses a tokeniser without this special token"
    return value


@contextmanager
def _progress(title: str) -> Generator[Callable[[int, int], None]]:
    """Show a bar on a terminal, and nothing where standard error is a file or rich is not installed."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda done, total: None
        return
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
