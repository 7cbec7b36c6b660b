"""Readers of files by their endings, the files that a source names, and the split that a file's name says."""

import re
from collections.abc import Callable, Sequence
from glob import has_magic
from itertools import takewhile
from pathlib import Path

from wordorder.data.corpora.document import Part
from wordorder.data.corpora.lines import RowReader, read_json_lines
from wordorder.data.corpora.named import read_hub, read_sotu, read_task
from wordorder.data.corpora.plain_text import read_text, read_wikitext
from wordorder.data.corpora.tables import read_parquet, read_table
from wordorder.data.reading_log import LEFT_OUT, ReadingLog
from wordorder.data.settings import TASK, DataSettings
from wordorder.errors import BadInput
from wordorder.limits import entries_below, matches

TEXT_READERS: dict[str, RowReader] = {".txt": read_text, ".tokens": read_wikitext}
"""File name ending -> reader of running text. One row may be a whole corpus, to be cut into documents."""

ROW_READERS: dict[str, RowReader] = {
    ".jsonl": read_json_lines,
    ".jsonl.gz": read_json_lines,
    ".csv": read_table,
    ".tsv": read_table,
    ".parquet": read_parquet,
}
"""File name ending -> reader of a file whose rows have several columns."""

READERS = TEXT_READERS | ROW_READERS
"""File name ending -> reader."""

FILE_ENDINGS = tuple(READERS)
"""Endings of the names of files that can be read."""

NAMED_READERS: dict[str, Callable[[str, DataSettings], list[Part]]] = {
    "sotu": lambda rest, _: read_sotu(rest),
    "hub": lambda rest, _: read_hub(rest),
    TASK: read_task,
}
"""Word before the first colon of a source -> reader, which gets what follows the colon, and the section [data]."""

_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def kind_of(path: Path) -> str:
    """Return the ending of a file's name that says which reader it has, in small letters: .jsonl.gz of a packed one."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:])


def find_files(name: str, source: str, log: ReadingLog | None = None) -> tuple[Path, list[Path]]:
    """Return the folder below which file and folder names may name splits, and the files sorted by name.

    Of a folder and of a glob all that is not read is counted in `log`: files with other endings, hidden files and
    folders, and links to folders. A link that leads nowhere is among the files, so that reading it is a fault.

    Raises:
        BadInput: there is no such file, or a folder in it cannot be read.
    """
    path, known = Path(source).expanduser(), ", ".join(FILE_ENDINGS)
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
                f"{name} {source} does not exist: give a file, folder or glob of {known}, or sotu, hub:NAME or "
                "task:NAME"
            )
        kinds = _kinds(entries, hidden=path.is_dir())
    except OSError as error:
        raise BadInput(
            f"{name} {source}: {error.filename} cannot be read: {error.strerror}; give yourself the right to read it, "
            "or name the files by a glob that leaves it out"
        ) from None
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{name} {source}: {error}") from None
    files = sorted(entry for entry, kind in kinds.items() if kind in FILE_ENDINGS)
    if not files:
        raise BadInput(f"{name} {source} names no file that ends in {known}")
    for entry, kind in sorted(kinds.items()):
        if log is not None and kind not in FILE_ENDINGS:
            log.count(LEFT_OUT, kind, str(entry))
    return root, files


def _kinds(entries: Sequence[Path], *, hidden: bool) -> dict[Path, str]:
    """Return the ending of each file, or of what else it is left out as; folders that were looked into have none.

    Args:
        hidden: leave hidden entries out, which a glob finds only where it names them.
    """
    parents, kinds = {entry.parent for entry in entries}, dict[Path, str]()
    for entry in entries:
        if hidden and entry.name.startswith("."):
            if entry.is_dir() or kind_of(entry) in FILE_ENDINGS:
                kinds[entry] = "hidden"
        elif entry.is_dir():
            if entry not in parents and any(entry.iterdir()):
                kinds[entry] = "folders"
        elif kind_of(entry) not in FILE_ENDINGS and entry.is_symlink() and not entry.exists():  # perhaps to a folder
            raise BadInput(f"{entry} is a link to {entry.readlink()}, which is not there; bring it back, or remove it")
        else:
            kinds[entry] = kind_of(entry) or "no ending"
    return kinds


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
