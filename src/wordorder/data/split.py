"""Documents go to train, validation or test before anything else is done with them, tokeniser training included."""

import hashlib
from dataclasses import dataclass
from itertools import groupby

from wordorder.data.config import NONE, DataConfig
from wordorder.data.corpora import Document
from wordorder.errors import BadInput

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The documents of each part. No text of validation or test occurs in an earlier part; no pair, where they are
    pairs."""

    train: list[Document]
    validation: list[Document]
    test: list[Document]
    dropped_duplicates: int = 0
    """Documents of official splits that were dropped because a later part holds the same text."""

    def parts(self) -> dict[str, list[Document]]:
        """Return the three lists by name, in the order of `SPLITS`."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


def split_documents(documents: list[Document], data: DataConfig) -> Split:
    """Split documents, each part at least one, by a hash of (data.seed, text).

    Documents of the same text count as one and stay together. Classes are spread evenly: in the list sorted by label
    and then by hash, every n-th goes to test, so each label's share is right to within one document; one document of
    every label stays in train. Splits that the source itself has, or that have a source of their own, are kept, but for
    documents whose text (and pair) a later part holds too; only what is missing is taken from train. With
    data.test_source "none" there is no test.

    Raises:
        BadInput: there are too few different documents.
    """
    official: dict[str, list[Document]] = {name: [] for name in SPLITS}
    for document in _limited(documents, data):
        official[document.split or "train"].append(document)
    seen = {_content(document) for document in official["test"]}
    kept_validation = [document for document in official["validation"] if _content(document) not in seen]
    seen |= {_content(document) for document in kept_validation}
    kept_train = [document for document in official["train"] if _content(document) not in seen]
    dropped = sum(map(len, official.values())) - len(kept_train) - len(kept_validation) - len(official["test"])

    parts = {"train": kept_train, "validation": kept_validation, "test": official["test"]}
    for name, fraction in (("test", data.test_fraction), ("validation", data.validation_fraction)):
        if not parts[name] and not (name == "test" and data.test_source == NONE):
            untouched = name == "test" or official["test"] or data.test_source == NONE
            share = fraction if untouched else fraction / (1 - data.test_fraction)
            parts["train"], parts[name] = _take(parts["train"], share, data)
    return Split(**parts, dropped_duplicates=dropped)


def _content(document: Document) -> tuple[str, str | None]:
    return document.text, document.pair  # many pairs share their first text


def _hash(document: Document, seed: int, purpose: str) -> bytes:
    return hashlib.blake2b(f"{purpose} {seed} {document.text}".encode(), digest_size=16).digest()


def _limited(documents: list[Document], data: DataConfig) -> list[Document]:
    """Keep data.limit_documents documents, drawn by hash: the first ones would be one period, author or class."""
    if data.limit_documents is None or data.limit_documents >= len(documents):
        return documents
    order = sorted(range(len(documents)), key=lambda i: (_hash(documents[i], data.seed, "limit"), i))
    return [documents[i] for i in sorted(order[: data.limit_documents])]


def _take(documents: list[Document], fraction: float, data: DataConfig) -> tuple[list[Document], list[Document]]:
    """Return what stays and what is taken, both in the order given."""
    first_of = {document.text: document for document in reversed(documents)}

    def class_of(document: Document) -> str:
        return document.label or "" if data.task == "classification" else ""  # a number is no class

    ranked = sorted(first_of.values(), key=lambda d: (class_of(d), _hash(d, data.seed, "split")))
    free = [d for _, same in groupby(ranked, key=class_of) for d in list(same)[1:]]
    count = max(1, round(fraction * len(ranked)))
    if count > len(free):
        labels = len(ranked) - len(free)
        raise BadInput(
            f"data.source {data.source} has too few different documents to split: "
            f"{len(ranked)} of {labels} label{'s' if labels > 1 else ''} are left where {count + labels} are needed"
        )
    # Evenly spaced from the middle of the first step, so that neither the first nor the last label is favoured.
    taken = {free[(2 * i + 1) * len(free) // (2 * count)].text for i in range(count)}
    return [d for d in documents if d.text not in taken], [d for d in documents if d.text in taken]
