"""Readers of files by their endings, the files that a source names, and the split that a file's name says."""

import re
from collections.abc import Callable
from glob import has_magic
from itertools import takewhile
from pathlib import Path

from wordorder.data.corpora.document import Part
from wordorder.data.corpora.lines import RowReader, read_json_lines
from wordorder.data.corpora.named import read_hub, read_sotu
from wordorder.data.corpora.parquet import read_parquet
from wordorder.data.corpora.plain_text import read_text, read_wikitext
from wordorder.data.corpora.tables import read_table
from wordorder.data.generated.draw import read_task
from wordorder.data.names import TASK
from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput
from wordorder.limits import matches

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
    """Return the ending of a file's name that says which reader it has: of a packed file that of its content too."""
    return "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix


def find_files(name: str, source: str) -> tuple[Path, list[Path]]:
    """Return the folder below which file and folder names may name splits, and the files sorted by name."""
    path, known = Path(source).expanduser(), ", ".join(FILE_ENDINGS)
    if path.is_dir():
        root, found = path, path.rglob("*")
    elif path.exists():
        root, found = path.parent, [path]
    elif has_magic(source):
        try:
            found = [Path(match) for match in matches(str(path))]
        except ValueError as error:
            raise BadInput(f"{name} {source}: {error}") from None
        root = Path(*takewhile(lambda part: not has_magic(part), path.parts))
    else:
        raise BadInput(
            f"{name} {source} does not exist: give a file, folder or glob of {known}, or sotu, hub:NAME or task:NAME"
        )
    files = sorted(file for file in found if kind_of(file) in FILE_ENDINGS and file.is_file())
    if not files:
        raise BadInput(f"{name} {source} names no file that ends in {known}")
    return root, files


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
    """Return the split of the outermost part of a path that names one split; further in are classes and titles."""
    for part in path.parts:
        words = {_SPLIT_WORDS.get(word.lower()) for word in re.split(r"[\\._-]", part)} - {None}
        if len(words) == 1:
            return words.pop()
    return None
