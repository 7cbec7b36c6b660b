"""Check `[data]` by its task, and read the documents of its `source`, with every fault of every file in one report."""

import math
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from wordorder.data.corpora.document import Document, Part, Row, is_unicode, text_fault
from wordorder.data.corpora.lines import read_rows
from wordorder.data.corpora.plain_text import (
    cut_into_documents,
    is_scan,
    keep_translations_together,
    read_line_pairs,
    read_scan,
)
from wordorder.data.corpora.read import (
    NAMED_READERS,
    READERS,
    ROW_READERS,
    TEXT_READERS,
    find_files,
    kind_of,
    official_splits,
)
from wordorder.data.generated import generated_faults
from wordorder.data.reading_log import ReadingLog
from wordorder.data.settings import NONE, DataSettings, TokenizerConfig
from wordorder.errors import BadInput
from wordorder.limits import one_line
from wordorder.section import unknown_choice
from wordorder.tasks import TASKS, check_data


def _known(task: str) -> str:
    if task not in TASKS:
        raise BadInput(unknown_choice("data.task", task, TASKS))
    return task


class DataConfig(DataSettings):
    """The corpus, the task and the split, checked by the task too.

    Raises:
        BadInput: a value has the wrong type, is out of range, is not one of the known names, or is not for this task.
    """

    task: Annotated[str, AfterValidator(_known)]
    """One of the names of `wordorder.tasks.TASKS`."""

    def faults(self) -> list[str]:
        return [*super().faults(), *generated_faults(self), *check_data(self)]


def token_faults(data: DataConfig, tokenizer: TokenizerConfig) -> list[str]:
    """Return the faults of the two sections together: only single labelled texts do without special tokens."""
    if tokenizer.add_special_tokens or (TASKS[data.task].labels is not None and not data.pair_column):
        return []
    why = "[SEP] is what sets the two texts of a pair apart" if data.pair_column else f"task {data.task} needs them"
    return [f"tokenizer.add_special_tokens must be true here: {why}; leave it out"]


_MOST_FAULTS = 20
_NO_LABEL = "has no label"
_LONGEST_LABEL = 1_000  # letters; a longer one would fill every table and message


def read_documents(data: DataConfig) -> list[Document]:
    """Read all documents of the source, in the order of their file names; see `read_and_count`."""
    return read_and_count(data)[0]


def read_and_count(data: DataConfig, log: ReadingLog | None = None) -> tuple[list[Document], int]:
    """Read all documents of the source, in the order of their file names, and count the rows without text.

    Rows without text are left out: sets such as CR and MPQA have a few.

    Splits are official when files or folders below the source are named train, validation (valid, val, dev) and test,
    alone or as a word of the name (`train.jsonl`, `test-00000-of-00002.parquet`, `train/pos/3.txt`), and at least
    train and one other are there; the outermost part of a path that names one split decides. Such a test split is left
    out where all its labels are hidden (no such column, or null throughout), as GLUE's are. `validation_source` and
    `test_source` take the place of the source's own splits.

    Args:
        log: takes what cannot be read where data.skip_unreadable says so; None: nobody wants to know.

    Raises:
        BadInput: one line per fault: no such file, empty, binary or not UTF-8, no such column, label missing ...
        MissingExtra: the reader's package is not installed.
    """
    log = ReadingLog(skip=data.skip_unreadable) if log is None else log
    given = {"validation": data.validation_source, "test": data.test_source}
    parts = [part for part in _read("", data.source, data, log) if not given.get(part.split or "")]
    parts = [part for part in parts if not _is_hidden(part, data)]
    for split, source in given.items():
        if source not in (None, NONE):
            parts += [replace(part, split=split) for part in _read(f"{split}_", source, data, log)]
    faults: list[str] = []
    documents: list[Document] = []
    empty = sum(_add_documents(documents, part, data, faults, log) for part in parts)
    if not documents and not faults:
        faults.append(f"data.source {data.source} has no text")
    _raise_if_any(faults)
    task = TASKS[data.task]
    if task.labels:
        task.check_labels(documents, data)
        log.notes += task.label_notes(documents, data)
    together = task.translates and not any(part.by_rule for part in parts)
    return keep_translations_together(documents) if together else documents, empty


def _read(name: str, source: str, data: DataConfig, log: ReadingLog) -> list[Part]:
    target: str | None = getattr(data, f"{name}target_source")
    if target is not None:
        pairs = read_line_pairs(Path(source).expanduser(), Path(target).expanduser(), name=name)
        rows: list[Row] = [{data.text_column: text, data.target_column: other} for text, other in pairs]
        return [Part(origin=f"{source} and {target}", rows=rows)]
    path = Path(source).expanduser()
    if TASKS[data.task].translates and kind_of(path) not in ROW_READERS and path.is_file() and not is_scan(path):
        raise BadInput(
            f"data.{name}source {source} is a file of lines: name the file of their translations by "
            f"data.{name}target_source, or take a file that has both in columns ({', '.join(ROW_READERS)}), or one of "
            "lines like SCAN's, IN: ... OUT: ..."
        )
    reader, _, rest = source.partition(":")
    if reader in NAMED_READERS:
        return NAMED_READERS[reader](rest, data)
    return _read_files(f"data.{name}source", source, data, log)


def _is_hidden(part: Part, data: DataConfig) -> bool:
    if part.split != "test" or TASKS[data.task].labels is None:
        return False
    return all(_label_fault(row.get(data.label_column), data) == _NO_LABEL for row in part.rows)


def _raise_if_any(faults: list[str]) -> None:
    if len(faults) > _MOST_FAULTS:
        faults = [*faults[:_MOST_FAULTS], f"and {len(faults) - _MOST_FAULTS} more faults"]
    if faults:
        raise BadInput(faults)


def _read_files(name: str, source: str, data: DataConfig, log: ReadingLog) -> list[Part]:
    root, paths = find_files(name, source, log)
    splits = official_splits(name, root, paths)
    parts: list[Part] = []
    faults: list[str] = []
    for path, split in zip(paths, splits, strict=True):
        try:
            if TASKS[data.task].translates and is_scan(path):
                pairs: list[Row] = [{data.text_column: text, data.target_column: to} for text, to in read_scan(path)]
                parts.append(Part(origin=str(path), rows=pairs, split=split, by_rule=True))
                continue
            rows = read_rows(READERS[kind_of(path)], path, data.columns)
            if kind_of(path) in TEXT_READERS and splits.count(split) == 1 and len(rows) == 1:
                rows = [row | {"text": own} for row in rows for own in cut_into_documents(str(row["text"]))]
            parts.append(Part(origin=str(path), rows=rows, split=split))
        except (BadInput, OSError) as error:
            own = error.faults if isinstance(error, BadInput) else (_unreadable(path, error),)
            if not log.skip:
                faults += own
            elif rows := _readable_rows(path, data, own[0], log):
                parts.append(Part(origin=str(path), rows=rows, split=split))
    _raise_if_any(faults)
    return parts


def _readable_rows(path: Path, data: DataConfig, fault: str, log: ReadingLog) -> list[Row]:
    if kind_of(path) not in ROW_READERS:
        log.unreadable(str(path), fault)
        return []
    rows: list[Row] = []
    try:
        for found in ROW_READERS[kind_of(path)](path, columns=data.columns):
            if found.row is None:
                log.unreadable(str(path), found.fault)
            else:
                rows.append(found.row)
    except OSError as error:
        log.unreadable(str(path), _unreadable(path, error))
    return rows


def _unreadable(path: Path, error: OSError) -> str:
    if path.is_symlink() and not path.exists():
        return f"{path} is a link to {path.readlink()}, which is not there; bring it back, or remove the link"
    return f"{path} cannot be read: {error.strerror or error}"


def _add_documents(documents: list[Document], part: Part, data: DataConfig, faults: list[str], log: ReadingLog) -> int:
    task = TASKS[data.task]
    label_column, translated = data.label_column if task.labels else None, task.has_answers(data)
    pair_column = data.target_column if translated else data.pair_column
    settings = {data.text_column: "data.text_column", label_column: "data.label_column"}
    settings[pair_column] = "data.target_column" if translated else "data.pair_column"
    present = list(dict.fromkeys(name for row in part.rows for name in row))
    missing = [name for name in settings if name is not None and name not in present]
    if missing and part.rows:
        files = ", or the file of translations by data.target_source (evaluate: --target)" if translated else ""
        faults += [
            f"{part.origin} has no column {name!r}; its columns are {', '.join(present)}; name the right one by"
            f" {settings[name]}{files}"
            for name in missing
        ]
        return 0
    empty = 0
    for number, row in enumerate(part.rows, start=1):
        text, label, pair = (row.get(name) if name else None for name in (data.text_column, label_column, pair_column))
        found = [text_fault(str(name), value) for name, value in ((data.text_column, text), (pair_column, pair))]
        if label_column and isinstance(text, str) and text.strip() and (wrong := _label_fault(label, data)):
            found.append(f"column {label_column!r} {wrong}")
        own = [f"{part.origin} row {number}: {fault}" for fault in found if fault]
        if own and log.skip:
            log.unreadable(part.origin, own[0])
            continue
        faults += own
        if not isinstance(text, str) or not text.strip() or (translated and not str(pair or "").strip()):
            empty += 1
            continue
        length = None if data.generated is None else int(str(row["length"]))
        second, label_name = str(pair or ""), _label_text(label, data) if label_column else None
        if not translated:
            second = second if data.pair_column else None
            documents.append(Document(text=text, label=label_name, pair=second, split=part.split, length=length))
        else:
            documents.append(Document(text=text.strip(), pair=second.strip(), split=part.split, length=length))
    return empty


def _label_text(label: object, data: DataConfig) -> str:
    """Return a label as the class or number that it names: `1.0` is the class "1", and `True` the class "true"."""
    if TASKS[data.task].labels == "class":
        if isinstance(label, bool):
            return str(label).lower()
        if isinstance(label, float) and label.is_integer():
            return str(int(label))
    return unicodedata.normalize("NFC", str(label)).strip()


def _label_fault(label: object, data: DataConfig) -> str:
    """Return what is wrong with a label, or ""; pandas writes NaN for a missing one."""
    if label is None or not str(label).strip() or (isinstance(label, float) and math.isnan(label)):
        return _NO_LABEL
    if isinstance(label, str) and TASKS[data.task].labels == "class" and len(label) > _LONGEST_LABEL:
        return f"holds a text of {len(label):,} letters, which names no class; is it another column's?"
    if isinstance(label, str):
        return "" if is_unicode(label) else "holds half of a surrogate pair, not text"
    whole = isinstance(label, int) or (isinstance(label, float) and label.is_integer())  # True is an int
    if TASKS[data.task].labels == "class" and not whole:
        number = "; numbers need task regression" if isinstance(label, float) else ""
        return f"holds {one_line(label, 60)}, which names no class: write a text, a whole number, true or false{number}"
    return ""
