"""Split documents into train, validation and test before anything else is done, tokeniser training included."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from itertools import groupby

from wordorder.data.corpora.document import Document, same_text
from wordorder.data.documents import DataConfig
from wordorder.data.settings import BEST_ON_TEST, NONE, SPLITS
from wordorder.errors import BadInput
from wordorder.tasks import TASKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The documents of each part. No text of validation or test occurs in an earlier part, not with other white space
    either; no pair, where they are pairs; of translations no side. Under the protocol best-checkpoint-on-test,
    validation is the same list as test."""

    train: list[Document]
    validation: list[Document]
    test: list[Document]
    dropped_duplicates: int = 0
    """Documents of official splits that were dropped because a later part holds the same text."""

    def parts(self) -> dict[str, list[Document]]:
        return {"train": self.train, "validation": self.validation, "test": self.test}


def training_texts(split: Split) -> list[str]:
    """Return the texts that a tokeniser is trained on: the training split, and nothing else."""
    return [text for document in split.train for text in (document.text, document.pair) if text]


def split_documents(documents: list[Document], data: DataConfig) -> Split:
    """Split documents, each part at least one, by a hash of (data.seed, text).

    Documents of the same text, but for white space, count as one and stay together. Classes are spread evenly: in the
    list sorted by label and then by hash, every n-th goes to test, so each label's share is right to within one
    document; one document of every label stays in train. Splits that the source itself has, or that have a source of
    their own, are kept, but for documents whose text (and pair) a later part holds too; only what is missing is taken
    from train. With data.test_source "none" there is no test. With data.folds the test part is one of the folds.

    Raises:
        BadInput: there are too few different documents, or none for validation; or folds or a protocol that the
            source's own splits forbid; or what is left of the documents has labels that the task refuses.
    """
    official: dict[str, list[Document]] = {name: [] for name in SPLITS}
    limited = _limited(documents, data)
    for document in limited:
        official[document.split or "train"].append(document)
    own = [name for name in ("validation", "test") if official[name]]
    if own and data.folds is not None:
        raise BadInput(
            f"data.folds divides all texts of a source, but data.source {data.source} has its own {' and '.join(own)} "
            "split; leave data.folds out, or name the one file that holds all texts"
        )
    if official["validation"] and data.protocol == BEST_ON_TEST:
        raise BadInput(
            f"data.protocol {BEST_ON_TEST} is for a source without a validation split, but data.source {data.source} "
            "has one; leave data.protocol out"
        )
    seen = {content for document in official["test"] for content in _contents(document)}
    kept_validation = [document for document in official["validation"] if seen.isdisjoint(_contents(document))]
    seen |= {content for document in kept_validation for content in _contents(document)}
    train = [document for document in official["train"] if seen.isdisjoint(_contents(document))]
    dropped = sum(map(len, official.values())) - len(train) - len(kept_validation) - len(official["test"])

    test, test_share = official["test"], 0.0
    if official["validation"] and not kept_validation:
        where = f"data.validation_source {data.validation_source}" if data.validation_source else "the validation split"
        raise BadInput(f"{where} has no text that {'data.test_source' if data.test_source else 'the test'} has not")
    if not test and data.test_source != NONE:
        test_share = data.test_fraction if data.folds is None else 1 / data.folds
        train, test = _take(train, test_share, data) if data.folds is None else _take_fold(train, data.folds, data)
    validation = test if data.protocol == BEST_ON_TEST else kept_validation
    if not validation:
        # validation_fraction is a share of all texts, and the test part has been taken from them already
        train, validation = _take(train, data.validation_fraction / (1 - test_share), data)
    split = Split(train=train, validation=validation, test=test, dropped_duplicates=dropped)
    if TASKS[data.task].labels and (dropped or len(limited) < len(documents)):
        _check_labels(split, data)
    return split


def _check_labels(split: Split, data: DataConfig) -> None:
    """Refuse labels of the documents that are left, which were right before some were left out."""
    validation = [] if split.validation is split.test else split.validation
    try:
        TASKS[data.task].check_labels([*split.train, *validation, *split.test], data)
    except BadInput as error:
        dropped = split.dropped_duplicates
        reasons = [f"{dropped} {'copy was' if dropped == 1 else 'copies were'} dropped"] if dropped else []
        if data.limit_documents is not None:
            reasons.append("data.limit_documents kept some only: raise it")
        raise BadInput([f"{fault} ({'; '.join(reasons)})" for fault in error.faults]) from None


def _contents(document: Document) -> set[tuple[str | None, str | None]]:
    """Return the keys of a document: one of an earlier official split that shares a key with it is left out."""
    text, pair = same_text(document.text), None if document.pair is None else same_text(document.pair)
    # many labelled pairs share their first text; of a translation either side gives the other one away
    return {(text, pair)} if document.group is None else {(text, None), (None, pair)}


def _hash(document: Document, seed: int, purpose: str) -> bytes:
    return hashlib.blake2b(f"{purpose} {seed} {document.text}".encode(), digest_size=16).digest()


def _limited(documents: list[Document], data: DataConfig) -> list[Document]:
    """Keep data.limit_documents documents, drawn by hash: the first ones would be one period, author or class."""
    if data.limit_documents is None or data.limit_documents >= len(documents):
        return documents
    order = sorted(range(len(documents)), key=lambda i: (_hash(documents[i], data.seed, "limit"), i))
    return [documents[i] for i in sorted(order[: data.limit_documents])]


def _take_fold(documents: list[Document], folds: int, data: DataConfig) -> tuple[list[Document], list[Document]]:
    if data.fold_kind == "independent":
        return _take(documents, 1 / folds, data, purpose=f"fold {data.fold}")
    ranked = _ranked(documents, data, "folds")
    sizes = Counter(_class_of(document, data) for document in ranked)
    if len(ranked) < 2 * folds:  # fewer would leave no validation beside the held-out part
        raise BadInput(f"data.source {data.source} has {len(ranked)} different texts, too few for data.folds = {folds}")
    single = sorted(name for name, size in sizes.items() if size < 2)
    if single:
        raise BadInput(
            f"data.label_column {data.label_column!r}: {', '.join(single)} has one text only, so the fold that holds "
            "it would be trained without it; drop it, or leave data.folds out"
        )
    held_out = {document.together for document in ranked[data.fold :: folds]}
    return [d for d in documents if d.together not in held_out], [d for d in documents if d.together in held_out]


def _class_of(document: Document, data: DataConfig) -> str:
    return document.label or "" if TASKS[data.task].labels == "class" else ""  # a number is no class


def _ranked(documents: list[Document], data: DataConfig, purpose: str) -> list[Document]:
    first_of = {document.together: document for document in reversed(documents)}
    return sorted(first_of.values(), key=lambda d: (_class_of(d, data), _hash(d, data.seed, purpose)))


def _too_few(left: int, classes: int, wanted: int, data: DataConfig) -> str:
    of = f" of {classes} classes" if TASKS[data.task].labels == "class" and classes > 1 else ""
    needed = wanted + classes
    text = (
        f"data.source {data.source} has too few different documents to split into train, validation and test: "
        f"{left}{of} {'is' if left == 1 else 'are'} left where {needed} are needed"
    )
    if data.source.endswith((".txt", ".tokens")):
        text += "; one text file is cut into documents of 500 to 10,000 characters at blank lines or line ends"
    return f"{text}; give more text, or more files"


def _take(
    documents: list[Document], fraction: float, data: DataConfig, *, purpose: str = "split"
) -> tuple[list[Document], list[Document]]:
    ranked = _ranked(documents, data, purpose)
    free = [d for _, same in groupby(ranked, key=lambda d: _class_of(d, data)) for d in list(same)[1:]]
    count = max(1, round(fraction * len(ranked)))
    if count > len(free):
        raise BadInput(_too_few(len(ranked), len(ranked) - len(free), count, data))
    # Evenly spaced from the middle of the first step, so that neither the first nor the last label is favoured.
    taken = {free[(2 * i + 1) * len(free) // (2 * count)].together for i in range(count)}
    return [d for d in documents if d.together not in taken], [d for d in documents if d.together in taken]
