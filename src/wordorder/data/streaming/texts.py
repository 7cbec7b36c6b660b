"""The texts of a streamed source one after another, from any place, shared out to processes."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wordorder.data.cache import content_hash
from wordorder.data.corpora.document import Row, text_fault
from wordorder.data.corpora.lines import Found, Place
from wordorder.data.corpora.named import open_hub
from wordorder.data.corpora.read import STREAM_READERS, find_files, kind_of, official_splits
from wordorder.data.quality.reading_log import ReadingLog
from wordorder.data.randomness import counter_hash
from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput
from wordorder.limits import check_plain

Position = dict[str, Any]
"""A position at which reading goes on, as plain values; `epoch` is always there."""

GROUP = 2**22
"""Bytes of the small files that are read together; a larger file is a group of its own. Groups are what each epoch
shuffles, and what processes share out."""

_ORDER = 0x5123  # keeps the draws of this file apart from others
_ENDS = 2**16  # bytes at the beginning and the end of a file that its fingerprint reads


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a source, or, without text, the border after a group."""

    text: str | None
    file: str
    line: int
    after: Callable[[], Position]
    """Gives the place where reading goes on."""


class FileTexts:
    """The texts of files, sorted by name and put into groups, which come in another order in each epoch.

    Args:
        seed: of the order; None: as they come.
    """

    def __init__(self, data: DataSettings, log: ReadingLog, *, seed: int | None) -> None:
        self._data, self._log, self._seed = data, log, seed
        root, paths = find_files("data.source", data.source)
        splits = official_splits("data.source", root, paths)
        if "train" in splits:  # a folder that holds all splits
            paths = [path for path, split in zip(paths, splits, strict=True) if split == "train"]
        strange = [path for path in paths if kind_of(path) not in STREAM_READERS]
        if strange:
            known = ", ".join(STREAM_READERS)
            raise BadInput(f"data.streaming cannot read {strange[0]}: give files that end in {known}")
        self._groups: list[list[Path]] = []
        self.bytes: int | None = sum(path.stat().st_size for path in paths)
        size = GROUP
        for path in paths:
            if size >= GROUP:
                self._groups.append([])
                size = 0
            self._groups[-1].append(path)
            size += path.stat().st_size
        self.files = len(paths)
        self.fingerprint = content_hash(part for path in paths for part in _ends_of(path, root))
        """A hash that changes when the source does."""
        self._rank, self._world = 0, 1

    @property
    def shared(self) -> bool:
        """True if there are groups for every process; else each reads all groups and takes its blocks of them."""
        return len(self._groups) >= self._world

    def for_process(self, rank: int, world: int) -> "FileTexts":
        """Return the same files, of which one process reads its share."""
        own = copy(self)
        own._rank, own._world = rank, world
        return own

    def start(self, epoch: int) -> Position:
        """Return the position at which an epoch begins."""
        return _there(epoch, 0, 0, Place())()

    def texts(self, position: Position) -> Iterator[Text]:
        """Yield the texts from a position to the end of the epoch, and a border after each group."""
        epoch, first = position["epoch"], position["group"]
        place, skipped = Place(position["offset"], position["line"]), position["file"]
        order = np.arange(len(self._groups))
        if self._seed is not None:
            order = np.argsort(counter_hash(self._seed, _ORDER, epoch, order), kind="stable")
        own = order[self._rank :: self._world] if self.shared else order
        for group, number in enumerate(own.tolist()[first:], start=first):
            for file, path in enumerate(self._groups[number][skipped:], start=skipped):
                for found in self._read(path, place):
                    text = self._text_of(found, path)
                    if text is not None:
                        yield Text(text, str(path), found.line, _there(epoch, group, file, found.after))
                place = Place()
            skipped = 0
            yield Text(None, "", 0, _there(epoch, group + 1, 0, Place()))

    def _read(self, path: Path, place: Place) -> Iterator[Found]:
        try:
            yield from STREAM_READERS[kind_of(path)](path, place, self._data.columns)
        except OSError as error:  # gone or forbidden since it was found
            self._log.unreadable(str(path), 0, f"{path} cannot be read: {error.strerror or error}")

    def _text_of(self, found: Found, path: Path) -> str | None:
        if found.row is None:
            self._log.unreadable(str(path), found.line, found.fault)
            return None
        text, fault = text_of(found.row, self._data.text_column)
        if fault and found.line <= 2 and self._data.text_column not in found.row:
            raise BadInput(f"{path} {fault}")  # in the first row it is the wrong name, not a damaged line
        if fault:
            self._log.unreadable(str(path), found.line, f"{path} line {found.line} {fault}")
        return text


def _there(epoch: int, group: int, file: int, place: Place) -> Callable[[], Position]:
    return lambda: {"epoch": epoch, "group": group, "file": file, "offset": place.offset, "line": place.line}


def _ends_of(path: Path, root: Path) -> Iterator[bytes]:
    """Yield the path, size and both ends of a file: they tell it from another one without reading all of it."""
    size = path.stat().st_size
    yield f"{path.relative_to(root)} {size}".encode(errors="backslashreplace")  # not every name is UTF-8
    check_plain(path)
    with path.open("rb") as file:
        yield file.read(_ENDS)
        file.seek(max(0, size - _ENDS))
        yield file.read(_ENDS)


def text_of(row: Row, column: str) -> tuple[str | None, str]:
    """Return the text of a row, None where it is empty, and what is wrong with it."""
    if column not in row:
        names = ", ".join(row)
        return None, f"has no column {column!r}; its columns are {names}; name the right one by data.text_column"
    value = row[column]
    fault = text_fault(column, value)
    return (value if isinstance(value, str) and value.strip() and not fault else None), fault


class HubTexts:
    """The texts of a data set of the Hugging Face hub, in its own order.

    Args:
        dataset: a `datasets.IterableDataset`, never iterated.
    """

    shared = True
    bytes: int | None = None

    def __init__(self, dataset: Any, data: DataSettings, log: ReadingLog, *, fingerprint: str) -> None:
        self._dataset, self._data, self._log, self.fingerprint = dataset, data, log, fingerprint
        self._name = data.source

    def for_process(self, rank: int, world: int) -> "HubTexts":
        """Return the same data set, of which one process reads its share: whole shards, or every `world`-th row."""
        from datasets.distributed import split_dataset_by_node

        own = copy(self)
        own._dataset = split_dataset_by_node(copy(self._dataset), rank, world)
        if world > 1:  # whose rows have numbers of their own
            own._name = f"{self._data.source} (share {rank + 1} of {world})"
        return own

    def start(self, epoch: int) -> Position:
        return {"epoch": epoch, "row": 0, "state": None}

    def texts(self, position: Position) -> Iterator[Text]:
        dataset, epoch, number = copy(self._dataset), position["epoch"], position["row"]
        if position["state"] is not None:
            dataset.load_state_dict(position["state"])
        rows = iter(dataset)
        while True:
            try:
                row: Row | None = next(rows, None)
            except Exception as error:  # a shard that is gone or damaged raises what its reader raises
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise BadInput(f"data.source {self._data.source} row {number + 1} cannot be read: {reason}") from error
            if row is None:
                return
            number += 1
            text, fault = text_of(row, self._data.text_column)
            if fault and self._data.text_column not in row:
                raise BadInput(f"data.source {self._data.source} {fault}")
            if fault:
                self._log.unreadable(self._name, number, f"{self._name} row {number} {fault}")
            if text is not None:
                yield Text(text, self._name, number, _after_row(dataset, epoch, number))


def _after_row(dataset: Any, epoch: int, number: int) -> Callable[[], Position]:
    return lambda: {"epoch": epoch, "row": number, "state": dataset.state_dict()}


Source = FileTexts | HubTexts


def open_source(data: DataSettings, log: ReadingLog, *, seed: int | None) -> Source:
    """Open the streamed source of a recipe; `seed` is that of the order of files, None: as they come."""
    if not data.source.startswith("hub:"):
        return FileTexts(data, log, seed=seed)
    name = data.source.removeprefix("hub:")
    dataset = open_hub(name, streaming=True)
    repository, _, configuration = name.partition(":")
    described = (repository, configuration, dataset.features, getattr(dataset.info, "version", None))
    return HubTexts(dataset, data, log, fingerprint=content_hash(str(part) for part in described))
