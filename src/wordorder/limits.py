"""Read JSON, TOML and safetensors headers, names of files and globs; and the largest numbers that a recipe may hold.

A file that cannot be read is an `OSError`; what is wrong with its content is a `ValueError`, whatever the parser
underneath raises.
"""

import errno
import glob
import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

_Model = TypeVar("_Model", bound="BaseModel")

MOST_COUNT, MOST_SEED = 2**31 - 1, 2**32 - 1
"""Most steps, epochs, examples and the like; and the largest seed, as NumPy takes no larger one."""
MOST_THREADS, MOST_WORKERS = 1024, 256
"""Most threads of a process, and processes side by side: the largest machines have some hundreds of cores."""
MOST_ARMS, MOST_FOLDS, MOST_RUNS = 500, 10_000, 100_000
"""Most arms of a comparison, folds, and trainings of all arms, folds, seeds and rates."""
MOST_CLASSES, MOST_BEAMS, MOST_TOKENS = 1_000_000, 1024, 2**24
"""Most classes, for each of which transformers makes a name; beams of a search; and tokens of a vocabulary."""


def read_bytes(path: Path) -> bytes:
    check_plain(path)
    return path.read_bytes()


def check_plain(path: Path) -> None:
    """Refuse a pipe, which would wait for somebody to write, and a device, which may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def matches(pattern: str) -> Iterator[str]:
    """Yield the paths that a glob matches, unsorted; `**` stands for folders at any depth, those behind links too.

    A link to a folder that lies around it is not followed: the standard library goes round in it for hours.

    Raises:
        OSError: a folder in which a match may lie cannot be read; the standard library passes over it in silence.
    """
    parts = pattern.split(os.sep)
    if "**" not in parts:
        first = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))
        for number in range(first, len(parts)):
            for folder in glob.iglob(os.sep.join(parts[:number])) if number else (os.curdir,):
                check_readable(folder or os.sep)
        yield from glob.iglob(pattern)
        return
    first = parts.index("**")
    start, rest = os.sep.join(parts[:first]) or (os.curdir if first == 0 else os.sep), parts[first + 1 :]
    waiting = [(folder, frozenset({os.path.realpath(folder)})) for folder in glob.iglob(start) if os.path.isdir(folder)]
    while waiting:
        folder, around = waiting.pop()
        yield from matches(os.path.join(glob.escape(folder), *(rest or "*")))
        for inner in glob.iglob(os.path.join(glob.escape(folder), "*", "")):  # ends in a separator: folders alone
            place = os.path.realpath(inner)
            if place not in around:
                waiting.append((inner.rstrip(os.sep), around | {place}))


def check_readable(folder: str) -> None:
    """Refuse a folder whose files cannot be listed or opened; what is no folder is let pass."""
    if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


def entries_below(folder: Path) -> list[Path]:
    """Return all that lies in a folder, at any depth but in hidden folders and behind links.

    Raises:
        OSError: a folder in it cannot be read.
    """
    entries: list[Path] = []
    for place, folders, files in os.walk(folder):
        check_readable(place)
        entries += [Path(place, name) for name in (*folders, *files)]
        folders[:] = [name for name in folders if not name.startswith(".")]
    return entries


def read_json(path: Path) -> Any:
    return parse_json(read_bytes(path))


def read_model(path: Path, kind: type[_Model]) -> _Model:
    return as_model(read_json(path), kind)


def as_model(value: object, kind: type[_Model]) -> _Model:
    """Check the value of a JSON file as a pydantic model; all its faults are one `ValueError`."""
    from pydantic import ValidationError

    try:
        return kind.model_validate(value)
    except ValidationError as error:
        faults: list[str] = []
        for found in error.errors():
            said = found["msg"].removeprefix("Value error, ").replace("Input should", "must")
            faults.append(f"{'.'.join(map(str, found['loc'])) or 'it'} {said.replace('Field required', 'is missing')}")
        raise ValueError("; ".join(faults)) from None


def parse_json(content: bytes | str) -> object:
    try:
        return json.loads(content.decode("utf-8") if isinstance(content, bytes) else content)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file and return its tables; a byte order mark at its start, as Notepad writes, is left out."""
    try:
        return tomllib.loads(read_bytes(path).decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def is_plain_name(name: object) -> bool:
    """Return whether a name that a file gives means a file beside it, and nothing elsewhere.

    No separator of any system, no drive, not the folder itself or the one above it, no control character.
    """
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) < 256 or name in (".", ".."):
        return False
    return name.isprintable() and not any(mark in name for mark in "/\\:")


def path_below(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder by a name from outside, which may lead through folders but not out."""
    parts = name.split("/")
    path = folder.joinpath(*parts)
    if not all(map(is_plain_name, parts)) or not path.parent.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"the name {name[:200]!r} leads out of its folder; remove or rename what has it")
    return path


def one_line(error: object, most: int = 300) -> str:
    """Return the message of an error on one line, short, without control characters."""
    words = " ".join(str(error).split()) or type(error).__name__
    shown = words if len(words) <= most else f"{words[:most]}..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in shown)
