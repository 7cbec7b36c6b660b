"""Several files of one folder, written so that a reader never meets half of one."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wordorder.errors import BadInput


def check_writable(folder: Path) -> None:
    """Make the folder and write in it, and leave nothing behind.

    Args:
        folder: may be missing, with its parents.

    Raises:
        BadInput: it cannot be made or written.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
        for path in missing:
            path.rmdir()
    except OSError as error:
        raise BadInput(f"the folder {str(folder)!r} cannot be written: {error.strerror}; choose another one") from None


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write every file under a temporary name, flush all to the disk, then rename them in order.

    Until the first rename nothing that was there has changed; a crash between two renames leaves whole files only.

    Args:
        folder: made if needed.
        contents: what goes into each file, by its name.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
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
    if hasattr(os, "O_DIRECTORY"):  # makes the renames survive a power cut, where the system can do that
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def files_listed(path: Path) -> set[str]:
    """The names under "files" in a JSON file that an earlier inspection left; none where there is no such list."""
    try:
        listed: Any = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name) for name in listed if Path(str(name)).name == str(name)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
