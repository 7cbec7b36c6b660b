"""The texts of a source as one table in the cache: read once, checked row by row, and mapped into memory."""

import math
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from wordorder import __version__
from wordorder.data.cache import content_hash, new_file, note_of, write_note
from wordorder.data.duplicates import same_text, short_hash, words_of
from wordorder.data.readers import Fault, Note, Part, Row
from wordorder.data.reading_log import UNREADABLE, ReadingLog
from wordorder.data.settings import SPLITS, Columns, DataSettings
from wordorder.errors import BadInput, MissingExtra
from wordorder.files import one_line
from wordorder.streams import progress_bar

try:
    import pyarrow
except ImportError as error:
    raise MissingExtra("pyarrow", "train") from error

arrow: Any = pyarrow  # it has no type stubs
Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.bytes_]

_FORMAT = "1"  # of the columns, and of what rows become: raise it when either changes
_HASHES = ("text_hash", "pair_hash", "same_text", "same_pair", "words")
_HASH = 12  # bytes: among a thousand million texts two share one by chance once in 10^11 times
_SCHEMA = arrow.schema(
    [
        *((name, arrow.large_string()) for name in ("text", "pair", "label")),
        ("split", arrow.int8()),
        *((name, arrow.int32()) for name in ("length", "characters", "word_count")),
        *((name, arrow.binary(_HASH)) for name in _HASHES),
    ]
)
_ROWS, _CHARACTERS = 1_000, 2**22
"""Most rows of a batch, and characters after which it ends."""

_MOST_FAULTS = 20
_NO_LABEL = "has no label"
_LONGEST_LABEL = 1_000  # letters; a longer one would fill every table and message
_SKIP = "set data.skip_unreadable=true to pass over what cannot be read"
_SETTLED = 2.0
"""Seconds after its last change from which on a file's time tells every later change."""


class Text(NamedTuple):
    """One text of the source."""

    text: str
    label: str | None = None
    """The class or number; None where the task has none."""
    pair: str | None = None
    """The second text, the answer or the translation."""
    split: str | None = None
    """train, validation or test, where the source itself says so."""
    length: int | None = None
    """Length of a generated text, as its task counts it; None for texts that are read."""


class Texts:
    """The texts of a source, in the order of its files, in a table that is mapped and not held.

    Args:
        table: of `_SCHEMA`, with a row for each text.
        empty: rows of the source without text.
        together: texts that share their text or their pair belong together, as translations that people made do.
    """

    def __init__(self, table: Any, *, empty: int = 0, together: bool = False) -> None:
        self._table, self.empty, self.together = table, empty, together

    @classmethod
    def of(cls, texts: Iterable[Text], *, together: bool = False) -> "Texts":
        """Return texts that are held in memory."""
        sink = arrow.BufferOutputStream()
        with _Writer(sink) as writer:
            for text in texts:
                writer.add(text)
        return cls(arrow.ipc.open_file(sink.getvalue()).read_all(), together=together)

    def __len__(self) -> int:
        return self._table.num_rows

    def __iter__(self) -> Iterator[Text]:
        for batch in self._table.to_batches():
            row: dict[str, Any]
            for row in batch.select(("text", "label", "pair", "split", "length")).to_pylist():
                split: int | None = row.pop("split")
                yield Text(**row, split=None if split is None else SPLITS[split])

    def strings(self, column: str, rows: Integers | None = None) -> Iterator[str]:
        """Yield the texts, pairs or labels of rows in ascending order, "" for none; None: of all rows."""
        start = 0
        for chunk in self._table.column(column).chunks:
            part = chunk
            if rows is not None:
                low, high = np.searchsorted(rows, (start, start + len(chunk)))
                part = chunk.take(arrow.array(rows[low:high] - start))
            start += len(chunk)
            yield from (value or "" for value in part.to_pylist())

    def column(self, name: str, rows: Integers) -> "Column":
        return Column(self._table.column(name), rows)

    def numbers(self, column: str) -> Integers:
        """Return a column of numbers, -1 for none."""
        return self._table.column(column).fill_null(-1).to_numpy().astype(np.int64)

    def hashes(self, column: str) -> Hashes:
        """Return a column of hashes: of the text or pair itself, of it but for white space, or of its words."""
        parts = [
            np.frombuffer(chunk.buffers()[1], f"S{_HASH}", len(chunk), chunk.offset * _HASH)
            for chunk in self._table.column(column).chunks
        ]
        return np.concatenate([np.empty(0, f"S{_HASH}"), *parts])

    @cached_property
    def has_pairs(self) -> bool:
        """Whether each text has a second one."""
        return len(self) > 0 and self._table.column("pair").null_count == 0


class Column(Sequence[str]):
    """The texts of some rows, each of which is read when it is asked for."""

    def __init__(self, column: Any, rows: Integers) -> None:
        self._column, self._rows = column, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> "Column": ...

    def __getitem__(self, place: int | slice) -> "str | Column":
        if isinstance(place, slice):
            return Column(self._column, self._rows[place])
        return self._column[int(self._rows[place])].as_py() or ""


class _Writer:
    """Writes texts as batches of bounded size."""

    def __init__(self, sink: Any) -> None:
        self._file = arrow.ipc.new_file(sink, _SCHEMA)
        self._rows: list[dict[str, object]] = []
        self._characters = 0
        self.count = 0
        """Texts that were added."""
        self.progress: Callable[[int, int | None], None] = lambda done, total: None
        """Called with the number of texts after each batch."""

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._flush()
        self._file.close()

    def add(self, text: Text) -> None:
        pair = text.pair or ""
        self.count += 1
        self._rows.append(
            {
                **text._asdict(),
                "split": None if text.split is None else SPLITS.index(text.split),
                "characters": len(text.text),
                "word_count": len(text.text.split()),
                "text_hash": short_hash(text.text),
                "pair_hash": short_hash(pair),
                "same_text": short_hash(same_text(text.text)),
                "same_pair": short_hash(same_text(pair)),
                "words": short_hash(words_of(text.text)),
            }
        )
        self._characters += len(text.text) + len(pair)
        if len(self._rows) >= _ROWS or self._characters >= _CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_batch(arrow.RecordBatch.from_pylist(self._rows, schema=_SCHEMA))
            self.progress(self.count, None)
        self._rows, self._characters = [], 0


def read_texts(
    parts: Sequence[Part], data: DataSettings, columns: Columns, log: ReadingLog, *, cache_dir: Path
) -> Texts:
    """Read all texts of a source, or take the table of an earlier run that read the same files in the same way.

    Rows without text are left out and counted: sets such as CR and MPQA have a few. A test part whose labels are all
    hidden (no such column, or null throughout), as GLUE's are, is left out too, but where test_source names it.

    Args:
        log: takes what cannot be read where data.skip_unreadable says so.
        cache_dir: tables are kept in its folder `texts`, which may be as large as the source.

    Raises:
        BadInput: one line per fault: a file that is empty, binary or not of its encoding, no such column, no label ...
        MissingExtra: the reader's package is not installed.
    """
    if any(part.stamp is None for part in parts):
        sink = arrow.BufferOutputStream()
        with _Writer(sink) as writer:
            empty = _read(parts, data, columns, log, writer)
        return _texts(arrow.py_buffer(sink.getvalue()), empty, parts, columns)
    path = cache_dir / "texts" / f"{_key(parts, data, columns)}.arrow"
    note = note_of(path)
    if note is None:
        began, reading = time.time(), ReadingLog(skip=data.skip_unreadable)
        with new_file(path) as file:
            with arrow.OSFile(str(file.path), "wb") as sink, _Writer(sink) as writer:
                empty = _read(parts, data, columns, reading, writer)
            table = arrow.memory_map(str(file.path))
        note: dict[str, Any] | None = {"empty": empty, "passed_over": reading.summary(), "notes": reading.notes}
        if file.placed and not reading.passing and _settled(parts, began):
            write_note(path, note)
    else:
        table = arrow.memory_map(str(path))
    log.add(note["passed_over"], note["notes"])
    return _texts(table, note["empty"], parts, columns)


def _texts(source: Any, empty: int, parts: Sequence[Part], columns: Columns) -> Texts:
    together = columns.translated and not any(part.by_rule for part in parts)
    return Texts(arrow.ipc.open_file(source).read_all(), empty=empty, together=together)


def _key(parts: Sequence[Part], data: DataSettings, columns: Columns) -> str:
    how = (data.columns, data.format, data.delimiter, data.quoting, data.file_encoding, data.skip_unreadable)
    files = [(part.origin, part.split, part.named, part.stamp) for part in parts]
    return content_hash(map(repr, (_FORMAT, __version__, columns, how, files)))


def _settled(parts: Sequence[Part], began: float) -> bool:
    """Return whether every later change of a file will change its time: two changes at once may have the same one."""
    return all(changed / 1e9 + _SETTLED < began for part in parts for _, _, changed, _ in part.stamp or ())


class _Faults:
    """The first faults in words, and the number of all."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.number = 0

    def add(self, fault: str) -> None:
        self.number += 1
        if len(self.first) < _MOST_FAULTS:
            self.first.append(fault)

    def extend(self, other: "_Faults") -> None:
        self.number += other.number
        self.first = [*self.first, *other.first][:_MOST_FAULTS]

    def lines(self, remedy: str) -> list[str]:
        """Return the first faults and the number of the others, with a remedy behind the last."""
        more = self.number - len(self.first)
        lines = [*self.first, *([f"and {more} more faults"] if more else [])]
        return [*lines[:-1], f"{lines[-1]}{remedy}"]


def _read(parts: Sequence[Part], data: DataSettings, columns: Columns, log: ReadingLog, writer: _Writer) -> int:
    """Write all texts, and return the number of rows without text."""
    missing, unreadable, empty = _Faults(), _Faults(), 0
    with progress_bar("Reading texts") as writer.progress:
        for part in parts:
            empty += _read_part(part, columns, log, missing, unreadable, writer)
    if unreadable.number:
        missing.extend(unreadable)
        raise BadInput(missing.lines(f"; {_SKIP}"))
    if missing.number:
        raise BadInput(missing.lines(""))
    if not writer.count:
        raise BadInput(f"data.source {data.source} has no text")
    return empty


def _read_part(
    part: Part, columns: Columns, log: ReadingLog, missing: _Faults, unreadable: _Faults, writer: _Writer
) -> int:
    """Write the texts of a part, and return the number of rows without text.

    Args:
        missing: takes the columns that no row has.
        unreadable: takes what cannot be read, unless the log does.
    """
    # texts with their translations line by line have columns of their own
    names = ("text", columns.label, "target") if part.pairs else (columns.text, columns.label, columns.pair)
    present, used = dict[str, None](), set[str]()
    damage, faults = _Faults(), _Faults()  # what a reader cannot read; and that with the rows whose values are wrong
    rows = labelled = empty = 0
    for row in _rows_of(part, log):
        if isinstance(row, Note):
            log.notes.append(row.text)
            continue
        if isinstance(row, Fault):
            damage.add(row.text)
            faults.add(row.text)
            continue
        rows += 1
        present.update(dict.fromkeys(row.values))
        values = {name: _value(row.values, name, used) for name in names if name is not None}
        text, label, pair = (None if name is None else values[name] for name in names)
        # what is wrong with the values: a text that is no string, a label that names no class
        label_fault = _label_fault(label, columns) if columns.label else ""
        labelled += label_fault != _NO_LABEL
        wrong = [_text_fault(names[0], text), "" if names[2] is None else _text_fault(names[2], pair)]
        if label_fault and isinstance(text, str) and text.strip():
            wrong.append(f"column {columns.label!r} {label_fault}")
        if any(wrong):
            for fault in filter(None, wrong):
                faults.add(f"{part.origin} {row.place}: {fault}")
            continue
        # a text without its answer or translation is none
        second = str(pair or "")
        if not isinstance(text, str) or not text.strip() or (columns.answered and not second.strip()):
            empty += 1
            continue
        strip = str.strip if columns.answered else str
        length = row.values.get("length") if part.stamp is None else None
        writer.add(
            Text(
                text=strip(text),
                label=_label_text(label) if columns.label else None,
                pair=strip(second) if columns.pair else None,
                split=part.split,
                length=int(str(length)) if length is not None else None,
            )
        )
    if part.split == "test" and not part.named and columns.label and rows and not labelled:
        faults, rows, empty = damage, 0, 0  # its labels are hidden
    absent = [name for name in names if name is not None and name not in used] if rows else []
    for name in absent:
        missing.add(_missing(part.origin, name, tuple(present), columns))
    if absent:
        faults, empty = damage, 0
    if log.skip:
        log.count(UNREADABLE, part.origin, *faults.first, number=faults.number)
    else:
        unreadable.extend(faults)
    return empty


def _rows_of(part: Part, log: ReadingLog) -> Iterator[Row | Fault | Note]:
    """Yield the rows of a part, and a fault where the system cannot read on, which it perhaps can the next time."""
    try:
        yield from part.rows()
    except OSError as error:
        log.passing = True
        yield Fault(_unreadable(part.origin, error))


def _value(values: Mapping[str, object], name: str, used: set[str]) -> object:
    """Return the value of a column, or of `a.b.0` what lies in column a by key b and place 0; None if it is not there.

    Args:
        used: takes the names of columns that are there.
    """
    value: Any = values
    for key in (name,) if name in values else name.split("."):
        try:
            value = value[int(key) if isinstance(value, list) else key]
        except (LookupError, TypeError, ValueError):
            return None
    used.add(name)
    return value


def _missing(origin: str, name: str, present: Sequence[str], columns: Columns) -> str:
    option = {columns.text: "text_column", columns.label: "label_column"}.get(name, columns.pair_option)
    files = ", or the file of translations by task.target_source (evaluate: --target)" if columns.answered else ""
    names = f"its columns are {', '.join(present)}"
    section = "data" if option == "text_column" else "task"
    return f"{origin} has no column {name!r}; {names}; name the right one by {section}.{option}{files}"


def _unreadable(origin: str, error: OSError) -> str:
    path = Path(origin)
    if path.is_symlink() and not path.exists():
        return f"{path} is a link to {path.readlink()}, which is not there; bring it back, or remove the link"
    return f"{path} cannot be read: {error.strerror or error}"


def _is_unicode(text: str) -> bool:
    """Return False for a text with half of a surrogate pair, which JSON can spell: "\\ud800"."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text_fault(column: str, value: object) -> str:
    if value is None or (isinstance(value, str) and _is_unicode(value)):
        return ""
    kind = "half of a surrogate pair" if isinstance(value, str) else type(value).__name__
    return f"column {column!r} holds {kind}, not text"


def _label_text(label: object) -> str:
    """Return a label as the class or number that it names: `1.0` is "1", and `True` is "true"."""
    if isinstance(label, bool):
        return str(label).lower()
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return unicodedata.normalize("NFC", str(label)).strip()


def _label_fault(label: object, columns: Columns) -> str:
    """Return what is wrong with a label, or ""; pandas writes NaN for a missing one."""
    if label is None or not str(label).strip() or (isinstance(label, float) and math.isnan(label)):
        return _NO_LABEL
    if isinstance(label, str) and columns.labels == "class" and len(label) > _LONGEST_LABEL:
        return f"holds a text of {len(label):,} letters, which names no class; is it another column's?"
    if isinstance(label, str):
        return "" if _is_unicode(label) else "holds half of a surrogate pair, not text"
    whole = isinstance(label, int) or (isinstance(label, float) and label.is_integer())  # True is an int
    if columns.labels == "class" and not whole:
        number = "; numbers need task regression" if isinstance(label, float) else ""
        return f"holds {one_line(label, 60)}, which names no class: write a text, a whole number, true or false{number}"
    return ""
