"""Split texts into train, validation and test before anything else is done, tokeniser training included."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordorder.data.settings import BEST_ON_TEST, NONE, SPLITS, Columns, DataSettings
from wordorder.data.table import Integers, Texts
from wordorder.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The rows of each part, ascending. No text of validation or test occurs in an earlier part, not with other white
    space either; no pair, where they are pairs; of translations no side. Under the protocol best-checkpoint-on-test,
    validation is the same array as test."""

    train: Integers
    validation: Integers
    test: Integers
    dropped_duplicates: int = 0
    """Texts of official splits that were dropped because a later part holds the same text."""

    def parts(self) -> dict[str, Integers]:
        return {"train": self.train, "validation": self.validation, "test": self.test}


_REPORTED = 1_000
"""Texts between two reports of progress."""


@dataclass(frozen=True, slots=True)
class TrainingTexts:
    """The texts that a tokeniser is trained on, as often as they are read: the training split, and nothing else."""

    texts: Texts
    split: Split
    progress: Callable[[int, int | None], None] = lambda done, total: None
    """Called now and then with the number of texts read this time, and of all."""

    def __iter__(self) -> Iterator[str]:
        columns = (self.texts.strings(column, self.split.train) for column in ("text", "pair"))
        for number, (text, pair) in enumerate(zip(*columns, strict=True)):
            if number and not number % _REPORTED:
                self.progress(number, len(self.split.train))
            yield from (text, pair) if pair else (text,)


def divide(texts: Texts, data: DataSettings, columns: Columns) -> Split:
    """Split texts, each part at least one, by a hash of (data.seed, text).

    Texts that are the same but for white space count as one and stay together. Classes are spread evenly: in the list
    sorted by label and then by hash, every n-th goes to test, so each label's share is right to within one text; one
    text of every label stays in train. Splits that the source itself has, or that have a source of their own, are kept,
    but for texts (and pairs) that a later part holds too; only what is missing is taken from train. With
    data.test_source "none" there is no test. With data.folds the test part is one of the folds.

    Raises:
        BadInput: there are too few different texts, or none for validation; or folds or a protocol that the source's
            own splits forbid.
    """
    splitter = _Splitter(texts, data, columns)
    rows = splitter.limited()
    # a text of no split is one of training
    number = np.maximum(texts.numbers("split"), 0)[rows]
    train, validation, test = (rows[number == place] for place in range(len(SPLITS)))
    for place, name in enumerate(SPLITS):
        if name != "train" and place not in number and place in texts.numbers("split"):
            raise BadInput(
                f"data.limit_documents {data.limit_documents} leaves no text of the {name} split, which is not to be "
                "taken from training; raise it"
            )
    official = [name for name, part in (("validation", validation), ("test", test)) if len(part)]
    if official and data.folds is not None:
        raise BadInput(
            f"data.folds divides all texts of a source, but data.source {data.source} has its own "
            f"{' and '.join(official)} split; leave data.folds out, or name the one file that holds all texts"
        )
    if len(validation) and data.protocol == BEST_ON_TEST:
        raise BadInput(
            f"data.protocol {BEST_ON_TEST} is for a source without a validation split, but data.source {data.source} "
            "has one; leave data.protocol out"
        )
    # a copy stays in the last part that has it
    new_validation = splitter.without_copies(validation, test)
    train = splitter.without_copies(train, np.concatenate([new_validation, test]))
    dropped = len(rows) - len(train) - len(new_validation) - len(test)
    if not len(train) and len(rows):
        raise BadInput(
            f"data.source {data.source} has no training text that validation and test do not have: each of them is left"
            f" out of training ({dropped} copies); give other texts"
        )
    if len(validation) and not len(new_validation):
        where = f"data.validation_source {data.validation_source}" if data.validation_source else "the validation split"
        raise BadInput(f"{where} has no text that {'data.test_source' if data.test_source else 'the test'} has not")
    # what the source does not have is taken from training
    test_share = 0.0
    if not len(test) and data.test_source != NONE:
        test_share = data.test_fraction if data.folds is None else 1 / data.folds
        train, test = splitter.take(train, test_share) if data.folds is None else splitter.take_fold(train, data.folds)
    validation = test if data.protocol == BEST_ON_TEST else new_validation
    if not len(validation):
        # validation_fraction is a share of all texts, and the test part has been taken from them already
        train, validation = splitter.take(train, data.validation_fraction / (1 - test_share))
    return Split(train=train, validation=validation, test=test, dropped_duplicates=dropped)


def undivided(texts: Texts, data: DataSettings, columns: Columns) -> Split:
    """Return all texts, or data.limit_documents of them, as the test."""
    none = np.empty(0, np.int64)
    return Split(train=none, validation=none, test=_Splitter(texts, data, columns).limited())


class _Splitter:
    """Draws rows of a table, each number of them by a hash of its text."""

    def __init__(self, texts: Texts, data: DataSettings, columns: Columns) -> None:
        self._texts, self._data, self._columns = texts, data, columns
        self._same = [_numbered(texts.hashes(name)) for name in ("same_text", "same_pair")]
        self._together = _groups(*self._same) if texts.together else self._same[0]
        """Rows of one number are never divided."""
        self._classes, self._class = np.array([""], object), np.zeros(len(texts), np.int64)
        if columns.labels == "class":
            labels = np.array(list(texts.strings("label")), object)
            self._classes, self._class = np.unique(labels, return_inverse=True)

    def _hashes(self, rows: Integers, purpose: str) -> Integers:
        """Return a hash of each text in two words, (2, rows), the second the more significant."""
        start = f"{purpose} {self._data.seed} "
        digests = (
            hashlib.blake2b(f"{start}{text}".encode(), digest_size=16).digest()
            for text in self._texts.strings("text", rows)
        )
        return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).T[::-1]

    def limited(self) -> Integers:
        """Return data.limit_documents rows, drawn by hash: the first ones would be one period, author or class."""
        rows, limit = np.arange(len(self._texts)), self._data.limit_documents
        if limit is None or limit >= len(rows):
            return rows
        return np.sort(np.lexsort(self._hashes(rows, "limit"))[:limit])

    def without_copies(self, rows: Integers, later: Integers) -> Integers:
        """Return the rows whose text and pair no later row has; of translations that people made, neither of them."""
        text, pair = self._same
        if self._texts.together:
            return rows[~(np.isin(text[rows], text[later]) | np.isin(pair[rows], pair[later]))]
        # many labelled pairs share their first text
        both = _numbered(text * (1 + int(pair.max(initial=0))) + pair)
        return rows[~np.isin(both[rows], both[later])]

    def take(self, rows: Integers, share: float, *, purpose: str = "split") -> tuple[Integers, Integers]:
        ranked = self._ranked(rows, purpose)
        first_of_class = np.diff(self._class[ranked], prepend=-1) != 0
        free = ranked[~first_of_class]
        count = max(1, round(share * len(ranked)))
        if count > len(free):
            raise BadInput(self._too_few(len(ranked), len(ranked) - len(free), count))
        # evenly spaced from the middle of the first step, so that neither the first nor the last label is favoured
        return self._divided(rows, free[(2 * np.arange(count) + 1) * len(free) // (2 * count)])

    def take_fold(self, rows: Integers, folds: int) -> tuple[Integers, Integers]:
        if self._data.fold_kind == "independent":
            return self.take(rows, 1 / folds, purpose=f"fold {self._data.fold}")
        ranked, source = self._ranked(rows, "folds"), self._data.source
        if len(ranked) < 2 * folds:  # fewer would leave no validation beside the held-out part
            raise BadInput(f"data.source {source} has {len(ranked)} different texts, too few for data.folds = {folds}")
        classes, sizes = np.unique(self._class[ranked], return_counts=True)
        single = [str(self._classes[number]) for number in classes[sizes < 2]]
        if single:
            raise BadInput(
                f"task.label_column {self._columns.label!r}: {', '.join(single)} has one text only, so the fold "
                "that holds it would be trained without it; drop it, or leave data.folds out"
            )
        return self._divided(rows, ranked[self._data.fold :: folds])

    def _ranked(self, rows: Integers, purpose: str) -> Integers:
        """Return the first of the rows that belong together, by class and then by hash."""
        first = np.sort(rows[np.unique(self._together[rows], return_index=True)[1]])
        return first[np.lexsort([*self._hashes(first, purpose), self._class[first]])]

    def _divided(self, rows: Integers, taken: Integers) -> tuple[Integers, Integers]:
        chosen = np.isin(self._together[rows], self._together[taken])
        return rows[~chosen], rows[chosen]

    def _too_few(self, left: int, classes: int, wanted: int) -> str:
        of = f" of {classes} classes" if self._columns.labels == "class" and classes > 1 else ""
        source = self._data.source
        text = (
            f"data.source {source} has too few different documents to split into train, validation and test: "
            f"{left}{of} {'is' if left == 1 else 'are'} left where {wanted + classes} are needed"
        )
        if source.endswith((".txt", ".tokens")):
            text += "; one text file is cut into documents of 500 to 10,000 characters at blank lines or line ends"
        return f"{text}; give more text, or more files"


def _numbered(values: npt.NDArray[np.generic]) -> Integers:
    """Return a number for each value, the same for equal ones."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _groups(text: Integers, pair: Integers) -> Integers:
    """Return the smallest row of those that each row shares a text or a pair with, directly or through others.

    A model that learned "Ein Mann liest." from one English sentence knows half of a test pair that has it beside
    another one.
    """
    parent = list(range(len(text)))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    for side in (text, pair):
        first = np.unique(side, return_index=True)[1]
        for row, other in enumerate(first[side].tolist()):
            roots = root(row), root(other)
            parent[max(roots)] = min(roots)
    return np.array([root(row) for row in range(len(parent))], np.int64)
