"""Write files so that they are whole or not there: under a temporary name, flushed to the disk, then renamed.

What a killed process leaves behind has a name that begins with a dot, see `leftovers` and `restore_replaced`.
"""

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from wordorder.limits import read_json

MANIFEST = "manifest.json"

_REPLACED = ".replaced-"
_DELETING = ".deleting-"
_LEFTOVER = re.compile(r"\.deleting-.+|\.probe-\d+|\..+\.(?:json|jsonl|toml|md|html|txt)\.\d+")


def check_writable(folder: Path) -> str | None:
    """Return why a folder cannot be made or written to, in the system's words; None where it can; leave nothing behind.

    Args:
        folder: may be missing, with its parents.
    """
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
    except OSError as error:  # a name that is too long, or a folder that may not be looked into
        return error.strerror or str(error)
    probe = folder / f".probe-{os.getpid()}"
    for attempts_left in (9, 8, 7, 6, 5, 4, 3, 2, 1, 0):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
            break
        except FileNotFoundError as error:  # another process, which tries the same, took the folder away again
            if not attempts_left:
                return error.strerror or str(error)
        except OSError as error:
            return error.strerror or str(error)
        except ValueError as error:  # a name with a null character
            return str(error)
    with suppress(OSError):  # another process is in it, or took it away
        for path in missing:
            path.rmdir()
    return None


def of_the_system(error: Exception) -> bool:
    """Return whether an error is the system's, such as a full disk: an OSError, or what a library in Rust makes of one.

    safetensors raises its own SafetensorError and tokenizers a bare Exception; both quote "(os error 28)".
    """
    return isinstance(error, OSError) or "(os error " in str(error)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents so that a power cut takes away neither them nor what is flushed in them.

    Args:
        folder: may be there already.

    Raises:
        OSError: it cannot be made.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a reader, or a crash, never meets half of it.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    write_files(path.parent, {path.name: text.encode()})


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write every file under a temporary name, flush all to the disk, then rename them in order.

    Until the first rename nothing that was there has changed; a crash between two renames leaves whole files only.

    Args:
        contents: what goes into each file, by its name.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
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
    """Write JSON as `write_text` does.

    Args:
        value: what to write; NaN and infinity are refused, since JSON has no word for them.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


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
    """Flush every file of a folder, and the folder itself, to the disk.

    Raises:
        OSError: the disk is full or broken.
    """
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)


def seal(folder: Path) -> None:
    """Flush every file of a folder to the disk and write its manifest: name -> size in bytes and SHA-256.

    Raises:
        OSError: the disk is full or broken.
    """
    entries: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            entries[path.name] = {
                "bytes": path.stat().st_size,
                "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
            }
            os.fsync(file.fileno())
    write_json(folder / MANIFEST, entries)


def is_whole(folder: Path) -> bool:
    """Return whether a folder holds exactly what its manifest says."""
    return damage(folder) is None


def damage(folder: Path) -> str | None:
    """Return what in a folder is not as its manifest says: the files by name and what is wrong with each, or None.

    Sizes are looked at before contents are read, so that a folder that was cut short is found out without reading it.
    """
    try:
        entries: Any = read_json(folder / MANIFEST)
        written = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in entries.items()}
        there = {path.name for path in folder.iterdir()} - {MANIFEST}
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except OSError as error:
        return f"{MANIFEST} cannot be read: {error.strerror}"
    except (ValueError, KeyError, AttributeError, TypeError, OverflowError):
        return f"{MANIFEST} is not what was written"
    if not written:
        return f"{MANIFEST} names no file"
    faults = [f"{name} is missing" for name in sorted(written.keys() - there)]
    faults += [f"{name} is not in {MANIFEST}" for name in sorted(there - written.keys())]
    present = sorted(written.keys() & there)
    faults += _faults(present, lambda name: _size_fault(folder / name, written[name][0]))
    if not faults:
        faults += _faults(present, lambda name: _content_fault(folder / name, written[name][1]))
    return ", ".join(faults) or None


def _faults(names: Iterable[str], look: Callable[[str], str | None]) -> list[str]:
    found: list[str] = []
    for name in names:
        try:
            fault = look(name)
        except OSError as error:
            fault = f"{name} cannot be read: {error.strerror}"
        if fault is not None:
            found.append(fault)
    return found


def _size_fault(path: Path, written: int) -> str | None:
    if path.is_symlink() or not path.is_file():  # a link leads out of the folder, a pipe would never end
        return f"{path.name} is no plain file"
    found = path.stat().st_size
    return None if found == written else f"{path.name} has {found} bytes, {written} were written"


def _content_fault(path: Path, written: str) -> str | None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return None if found == written else f"{path.name} is not as it was written: its SHA-256 is another"


def replace_folder(new: Path, final: Path) -> None:
    """Put a finished folder in the place of another; a crash leaves the old one or the new one, whole.

    POSIX has no call that every system offers to exchange two folders, so what was there moves to .replaced-<name>, the
    new one moves in, and the old one is removed when the disk knows of both. Between the two moves nothing has the
    name; `restore_replaced` gives it back to the old one then.

    Args:
        new: the finished folder, on the same file system, flushed to the disk.
        final: where it belongs; what is there is removed.

    Raises:
        OSError: a folder could not be renamed; what was there is in its place again.
    """
    former = final.with_name(f"{_REPLACED}{final.name}")
    try:
        if final.exists():
            if former.exists():
                remove_folder(former)
            final.rename(former)
        new.rename(final)
    except BaseException:
        restore_replaced(final.parent)
        raise
    sync_folder(final.parent)
    if former.exists():
        remove_folder(former)


def restore_replaced(folder: Path) -> None:
    """Finish or undo a `replace_folder` that crashed: the old folder gets its name back unless the new one has it.

    Args:
        folder: in which folders are replaced; may be missing.
    """
    for former in sorted(folder.glob(f"{_REPLACED}*")):
        final = folder / former.name.removeprefix(_REPLACED)
        with suppress(FileNotFoundError):  # another process of the same run was faster
            if final.exists():
                remove_folder(former)
            else:
                former.rename(final)
                sync_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder under another name, so that a crash leaves no half of it under its own.

    Args:
        folder: an existing folder; a file or a link that has taken its name is removed as well.

    Raises:
        OSError: it cannot be renamed. Files of it that cannot be removed stay, under a name that means nothing.
    """
    doomed = folder.with_name(f"{_DELETING}{folder.name}-{secrets.token_hex(4)}")
    folder.rename(doomed)
    if doomed.is_dir() and not doomed.is_symlink():
        shutil.rmtree(doomed, ignore_errors=True)
    else:
        with suppress(OSError):
            doomed.unlink()


def leftovers(folder: Path) -> list[Path]:
    """Return what killed processes left in a folder: half-written files and half-removed folders, under hidden names.

    Args:
        folder: an existing folder that no other process is writing to.
    """
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
