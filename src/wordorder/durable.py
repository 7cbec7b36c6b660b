"""Write files so that they are whole or not there: under a temporary name, flushed to the disk, then renamed.

What a killed process leaves behind has a name that begins with a dot, see `leftovers` and `restore_replaced`.
"""

import errno
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, cast

from wordorder.streams import printable

REPLACED = ".replaced-"
_DELETING = ".deleting-"
_LEFTOVER = re.compile(r"\.deleting-.+|\.probe-\d+|\..+\.(?:json|jsonl|toml|md|html|txt)\.\d+")


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
