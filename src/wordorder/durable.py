"""Files that are either whole or not there: written under a temporary name, flushed to the disk, renamed."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


def check_writable(folder: Path) -> str | None:
    """Try to make a folder and to write in it, and leave nothing behind: None, or why not, in the system's words.

    Args:
        folder: may be missing, with its parents.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
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
    with suppress(OSError):  # another process is in it, or took it away
        for path in missing:
            path.rmdir()
    return None


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a reader, or a crash, never meets half of it.

    Args:
        path: the file; its folder must exist.
        text: the whole content.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    write_files(path.parent, {path.name: text.encode()})


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write every file under a temporary name, flush all to the disk, then rename them in order.

    Until the first rename nothing that was there has changed; a crash between two renames leaves whole files only.

    Args:
        folder: must exist.
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


def write_json(path: Path, value: Any) -> None:
    """Write JSON as `write_text` does.

    Args:
        path: the file; its folder must exist.
        value: what to write; NaN and infinity are refused, since JSON has no word for them.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Make renames within a folder survive a power cut, where the system can do that.

    Args:
        folder: an existing folder.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_files(folder: Path) -> None:
    """Flush every file of a folder, and the folder itself, to the disk.

    Args:
        folder: a folder of plain files, written in full.

    Raises:
        OSError: the disk is full or broken.
    """
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)


def seal(folder: Path) -> None:
    """Flush every file of a folder to the disk and write its manifest: name -> size in bytes and SHA-256.

    Args:
        folder: a folder of plain files, written in full.

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
    """Whether a folder holds exactly what its manifest says.

    Args:
        folder: a folder that `seal` may have finished.
    """
    try:
        entries = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if {path.name for path in folder.iterdir()} != {*entries, MANIFEST} or not entries:
            return False
        for name, entry in entries.items():
            path = folder / name
            if path.stat().st_size != entry["bytes"]:
                return False
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
                    return False
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False
    return True


def replace_folder(new: Path, final: Path) -> None:
    """Put a finished folder in the place of another; for a moment neither name may exist, never half of one.

    Args:
        new: the finished folder, on the same file system.
        final: where it belongs; what is there is removed.
    """
    if final.exists():
        remove_folder(final)
    new.rename(final)
    sync_folder(final.parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder under another name, so that a crash leaves no half of it under its own.

    Args:
        folder: an existing folder.
    """
    doomed = folder.with_name(f".deleting-{folder.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
