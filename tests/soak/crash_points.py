"""Points at which a run dies: before or after a call that flushes or renames, and what a power cut then takes away."""

import os
import random
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

NAMES = ("fsync", "mkdir", "rename", "replace", "rmdir", "unlink")
"""Functions of `os` whose calls are counted; pathlib, shutil and wordorder.files go through them."""

END_OF_DISK = 4096  # bytes: a power cut loses whole pages


def die() -> NoReturn:
    """End this process as `kill -9` does: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL cannot be survived")


class CrashPoints:
    """Counts the calls that change a folder, and dies at one of them.

    Args:
        folder: only calls on files and folders in it count; may be missing yet.
        at: the number of the call to die at, from 1; None only counts.
        after: die after that call rather than before it.
        power: what the system had not been told to flush is lost too, see `PowerCut`; a random generator, or None.
        tell: is given every new count, so that another process can read it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        at: int | None,
        after: bool = False,
        power: random.Random | None = None,
        tell: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.folder, self.at, self.after, self.tell = folder.absolute(), at, after, tell
        self.count = 0
        self.original = {name: getattr(os, name) for name in NAMES}
        self.power = None if power is None else PowerCut(self.folder, power, self.original)

    def install(self) -> None:
        """Put the counters in the place of the functions of `os`, in this process alone."""
        for name in NAMES:
            setattr(os, name, self._counted(name, self.original[name]))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            path = place_of(args[0], kwargs.get("dir_fd"))
            if path is None or not (path == self.folder or self.folder in path.parents):
                return call(*args, **kwargs)
            self.count += 1
            self.tell(self.count)
            if self.count == self.at and not self.after:
                self.end()
            undo = self.power.before(name, path, args) if self.power else None
            result = call(*args, **kwargs)
            if self.power:
                self.power.done(name, path, undo)
            if self.count == self.at:
                self.end()
            return result

        return counted

    def end(self) -> NoReturn:
        """Lose what a power cut loses, if there is one, and die."""
        if self.power:
            self.power.cut()
        die()


def place_of(named: Any, folder: int | None) -> Path | None:
    """The path that a call of `os` is about: a path, a handle, or a name in an open folder.

    Args:
        named: its first argument.
        folder: its dir_fd.
    """
    try:
        if isinstance(named, int):
            return Path(os.readlink(f"/proc/self/fd/{named}"))
        if folder is not None:
            return Path(os.readlink(f"/proc/self/fd/{folder}")) / os.fsdecode(named)
        return Path(os.fsdecode(named)).absolute()
    except (OSError, TypeError):
        return None


class PowerCut:
    """What a disk may hold after a power cut: no byte is sure before its file's fsync, no name before its folder's.

    A journal has an order: names are lost from the last change backwards, and what made one change sure has made all
    before it sure. Bytes are lost from the end of a file.
    What was there when the process began is safe.

    Args:
        folder: what is watched.
        draw: decides how much is lost.
        original: the functions of `os`, uncounted.
    """

    def __init__(self, folder: Path, draw: random.Random, original: dict[str, Callable[..., Any]]) -> None:
        self.folder, self.draw, self.original = folder, draw, original
        self.attic = folder.parent / "attic"  # links to files whose name was taken or given to another
        self.attic.mkdir(exist_ok=True)
        self.sure = {path.stat().st_ino: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
        self.open: list[tuple[Path, Callable[[], None]]] = []  # changes of names not flushed yet: folder, how to undo

    def before(self, name: str, path: Path, args: tuple[Any, ...]) -> Callable[[], None] | None:
        """How the change of a name that is about to happen would be undone; None where nothing is to be undone.

        Args:
            name: of the call.
            path: what it is about.
            args: its arguments.
        """
        os_ = self.original
        if name in ("rename", "replace"):
            target = Path(os.fsdecode(args[1])).absolute()
            kept = self._keep(target)
            return lambda: (os_["rename"](target, path), kept and os_["rename"](kept, target)) and None
        if name == "unlink":
            kept = self._keep(path)
            return lambda: kept and os_["rename"](kept, path)
        return (lambda: path.is_dir() or os_["mkdir"](path)) if name == "rmdir" else None

    def _keep(self, path: Path) -> Path | None:
        if not path.is_file():
            return None
        kept = self.attic / str(len(self.open) + 1_000_000 * self.draw.randrange(1_000_000))
        os.link(path, kept)
        return kept

    def done(self, name: str, path: Path, undo: Callable[[], None] | None) -> None:
        """Take note of a call that succeeded.

        Args:
            name: of the call.
            path: what it was about.
            undo: from `before`.
        """
        if name == "fsync":
            found = path.stat()
            if stat.S_ISDIR(found.st_mode):
                changed = [number for number, (folder, _) in enumerate(self.open) if folder == path]
                del self.open[: changed[-1] + 1 if changed else 0]
            else:
                self.sure[found.st_ino] = found.st_size
        elif undo is not None:
            self.open.append((path.parent, undo))

    def cut(self) -> None:
        """Lose what may be lost."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                self._lose_bytes(path)
        lost = self.draw.randint(0, len(self.open))
        for _, undo in reversed(self.open[len(self.open) - lost :]):
            undo()

    def _lose_bytes(self, path: Path) -> None:
        found = path.stat()
        sure = self.sure.get(found.st_ino, 0)
        if sure >= found.st_size:
            return
        left = self.draw.choice([sure, found.st_size, self.draw.randint(sure, found.st_size)])
        os.truncate(path, max(sure, left // END_OF_DISK * END_OF_DISK if left < found.st_size else left))
