"""Read files, and write them so that they are whole or not there; the largest numbers that a recipe may hold.

What is written goes under a temporary name, is flushed to the disk, then renamed; what a killed process leaves behind
has a name that begins with a dot, see `leftovers` and `restore_replaced`. A file that cannot be read is an `OSError`;
what is wrong with its content is a `ValueError`, whatever the parser underneath raises.
"""

import errno
import glob
import json
import math
import os
import re
import secrets
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar, cast

from wordorder.streams import printable

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


REPLACED = ".replaced-"
_DELETING = ".deleting-"
_LEFTOVER = re.compile(r"\.deleting-.+|\.probe-\d+|\..+\.(?:json|jsonl|toml|md|html|txt|safetensors)\.\d+")


def is_url(place: object) -> bool:
    return "://" in str(place)


def check_writable(folder: Path) -> str | None:
    """Return why a folder cannot be made or written to, in the system's words, or None; nothing is made."""
    try:
        there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        for part in folder.relative_to(there).parts:
            with suppress(FileNotFoundError):
                (there / part).stat()  # the system allows the name
        with TemporaryFile(dir=there):  # a file without a name, in the folder or in the nearest one above it
            return None
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:  # a name with a null character
        return str(error)


def of_the_system(error: Exception) -> bool:
    """Return whether an error is the system's, such as a full disk: an OSError, or what a library in Rust makes of one.

    safetensors raises its own SafetensorError and tokenizers a bare Exception; both quote "(os error 28)".
    """
    return isinstance(error, OSError) or "(os error " in str(error)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents so that a power cut takes away neither them nor what is flushed in them."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a reader, or a crash, never meets half of it."""
    write_files(path.parent, {path.name: text.encode()})


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write every file under a temporary name, flush all to the disk, then rename them in order.

    Until the first rename nothing that was there has changed; a crash between two renames leaves whole files only.
    """
    temporary = {name: folder / f".{name}.{os.getpid()}" for name in contents}
    try:
        for name, content in contents.items():
            with temporary[name].open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for name, path in temporary.items():
            path.replace(folder / name)
    except BaseException:
        for path in temporary.values():
            path.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def write_json(path: Path, value: object) -> None:
    """Write JSON as `write_text` does, safe to show in a terminal.

    NaN and infinity are refused, since JSON has no word for them.
    """
    # escapes in a string read back as the same text
    text = printable(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"
    # the name of a file that is not UTF-8 has halves of surrogate pairs, which JSON can hold as escapes alone
    write_files(path.parent, {path.name: text.encode(errors="backslashreplace")})


def sync_folder(folder: Path) -> None:
    """Make renames within a folder survive a power cut, where the system can do that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot flush a folder
            raise
    finally:
        os.close(handle)


def sync_files(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)


def replace_folder(new: Path, final: Path) -> None:
    """Put a finished folder in the place of another; a crash leaves the old one or the new one, whole.

    POSIX has no call that every system offers to exchange two folders, so what was there moves to .replaced-<name>, the
    new one moves in, and the old one is removed when the disk knows of both. Between the two moves nothing has the
    name; `restore_replaced` gives it back to the old one then.
    """
    former = final.with_name(f"{REPLACED}{final.name}")
    try:
        if final.exists():
            if former.exists():
                remove_folder(former)
            final.rename(former)
        new.rename(final)
    except BaseException:
        restore_replaced(final.parent, final.name)
        raise
    sync_folder(final.parent)
    if former.exists():
        remove_folder(former)


def restore_replaced(folder: Path, name: str | None = None) -> None:
    """Finish or undo a `replace_folder` that crashed: the old folder gets its name back unless the new one has it.

    Without a name all folders in ``folder`` are restored, for which no other process may be at work there.
    """
    for former in sorted(folder.glob(f"{REPLACED}*")) if name is None else [folder / f"{REPLACED}{name}"]:
        final = folder / former.name.removeprefix(REPLACED)
        with suppress(FileNotFoundError):  # another process of the same run was faster
            if final.exists():
                remove_folder(former)
            else:
                former.rename(final)
                sync_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder, or a file or link in its place, under another name: a crash leaves no half under its own."""
    doomed = folder.with_name(f"{_DELETING}{folder.name}-{secrets.token_hex(4)}")
    folder.rename(doomed)
    if doomed.is_dir() and not doomed.is_symlink():
        shutil.rmtree(doomed, ignore_errors=True)
    else:
        with suppress(OSError):
            doomed.unlink()


def leftovers(folder: Path) -> list[Path]:
    """Return what killed processes left in a folder: half-written files and half-removed folders, all hidden."""
    return sorted(path for path in folder.iterdir() if _LEFTOVER.fullmatch(path.name))


def finite(value: Any) -> Any:
    """Return the value with NaN and infinities as None: JSON has none of them, and browsers refuse them."""
    if isinstance(value, Mapping):
        return {str(name): finite(inner) for name, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in cast("Sequence[Any]", value)]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
