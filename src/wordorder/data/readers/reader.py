"""Types of the readers of files: generators of rows, and of faults where there is no row."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """A row of a file."""

    values: Mapping[str, object]
    """Name of a column -> value, as the format has it."""
    place: str
    """The place where it stands, in words such as "line 3"."""


class Fault(NamedTuple):
    """A row, or a whole file, that cannot be read."""

    text: str
    """The reason, in words that name the file and the place."""


class Note(NamedTuple):
    """Something that was read, and perhaps not as it was meant."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is to be read: the options of [data] that readers have, and what the source knows of the file."""

    columns: tuple[str, ...] | None = None
    """Names of the columns of a table whose first line does not have them; None: it has."""
    delimiter: str | None = None
    """The character between two fields; None: that of the format."""
    quoting: str | None = None
    """"standard", fields may stand in quotation marks, or "none"; None: that of the format."""
    encoding: str = "utf-8"
    needed: Collection[str] = ()
    """Columns that are used, `a.b` also for b within a; a reader may leave the others out where all of these are there.
    Empty: all."""
    alone: bool = False
    """True for the only file of its split: one long text is cut into documents."""


Reader = Callable[[Path, Reading], Iterator[Row | Fault | Note]]
"""Reads a file from its beginning to its end, in bounded memory, and raises nothing but `OSError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows of one file, or of one split of a corpus that has a name."""

    origin: str
    """The file or corpus, as messages name it."""
    rows: Callable[[], Iterator[Row | Fault | Note]]
    stamp: tuple[tuple[str, int, int, int], ...] | None
    """Name, size, and times of the last change of content and of anything, in nanoseconds, of each file; None: nobody
    knows when rows change."""
    split: str | None = None
    """train, validation or test, where the source itself says so."""
    named: bool = False
    """True where validation_source or test_source names it."""
    by_rule: bool = False
    """The translations are made from the texts by a rule, so that many texts have the same one: a text of the test may
    share its translation with one of training, and only the pair must not be there."""
    delimited: bool = False
    """It is a table of csv or tsv."""
    pairs: bool = False
    """The columns are `text` and `target`, whatever [data] calls them."""


def stamp_of(path: Path) -> tuple[str, int, int, int]:
    """Return what differs when a file does. Whoever keeps the time of a copy cannot keep when it was made."""
    try:
        status = path.stat()
    except OSError:  # a link that leads nowhere, which reading it tells
        return str(path.absolute()), 0, 0, 0
    return str(path.absolute()), status.st_size, status.st_mtime_ns, status.st_ctime_ns
