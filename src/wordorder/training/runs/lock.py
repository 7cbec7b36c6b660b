"""Lock the folder of a run or a comparison, so that one process at a time writes into it."""

import errno
import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from wordorder.durable import make_folder
from wordorder.errors import BadInput
from wordorder.streams import printable

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold a folder for this process; one that was made for it and stays empty is removed at the end.

    The lock is POSIX's record lock, which belongs to the process alone: the system frees it at once when the process is
    killed, also where forked workers of it live on.

    Raises:
        BadInput: another process holds the folder.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    path = folder / LOCK
    handle = _lock(path)
    try:
        yield
    finally:
        with suppress(OSError):  # while it is held; the folder may have been moved, and another be in its place
            if os.path.samestat(os.fstat(handle), path.stat()):
                path.unlink()
        os.close(handle)
        for made in missing:
            with suppress(OSError):  # it is not empty
                made.rmdir()


def _lock(path: Path) -> int:
    """Return the handle of a lock file that this process holds."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl is not None:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                holder = os.read(handle, 300).decode(errors="replace").strip() or "another process"
                os.close(handle)
                raise BadInput(
                    f"training.output_dir: {str(path.parent)!r} is being written by {holder}; wait for its end, stop "
                    "it, or name another folder by --output-dir FOLDER"
                ) from None
            unlocked = f"{path.parent}: its file system has no locks ({error.strerror}); start nothing else in it"
            print(printable(unlocked), file=sys.stderr)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                break
        os.close(handle)  # who held it has removed it since
    os.ftruncate(handle, 0)
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    os.write(handle, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode())
    return handle
