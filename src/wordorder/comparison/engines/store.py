"""A comparison's folder in an object store, by its address: s3://bucket/folder, gs://bucket/folder, file:///folder.

fsspec reads and writes it (https://filesystem-spec.readthedocs.io); the packages for S3 and Google's storage are s3fs
and gcsfs. Trainings write into a working copy, and a thread copies what is new into the store:

- a checkpoint's manifest goes last, which holds size and digest of each file; without it a checkpoint does not count;
- metrics.json goes after all other files of a run, and says that it is finished;
- an object appears when it is whole; in a file system files are written under another name and renamed.
"""

# fsspec has no types
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

from wordorder.errors import BadInput, RunFailed
from wordorder.files import check_writable, path_below
from wordorder.training.checkpoints.checkpoint import MANIFEST, is_checkpoint
from wordorder.training.runs.folder import LOCK, METRICS

SECONDS = 5.0
"""Time between two copies of what is new."""

_PART, _PROBE = ".part", ".wordorder-probe"


Seen = dict[PurePosixPath, tuple[int, int]]
"""The files of a folder, with their sizes and times."""


@dataclass(kw_only=True)
class Store:
    """An object store's folder, and its copy here, where the comparison reads and writes.

    Raises:
        RunFailed: the store cannot be read or written.
    """

    url: str
    here: Path
    """The copy, until this process ends; without checkpoints, which are in the working copies."""
    saved: Seen = field(default_factory=Seen)
    """The files of the copy that the store has too."""

    @classmethod
    def open(cls, url: str) -> Store:
        """Reach the store, and fetch what it has.

        Raises:
            BadInput: the address names no folder, the store or its package cannot be had, or a name leads out of it.
        """
        if not url.partition("://")[2].strip("/"):
            raise BadInput(
                f"--output-dir: {url} names no folder; write one, as in file:///folder or s3://bucket/folder"
            )
        store = cls(url=url.rstrip("/"), here=Path(tempfile.mkdtemp(prefix="wordorder-")))
        atexit.register(shutil.rmtree, store.here, ignore_errors=True)
        try:
            system, root = store.connect()
            if _is_local(system):
                system.makedirs(root, exist_ok=True)
            elif "/" not in root.strip("/"):
                raise ValueError("name a folder, as in s3://bucket/folder")
            system.pipe_file(f"{root}/{_PROBE}", b"")
            system.rm_file(f"{root}/{_PROBE}")
            store.fetch(store.here)
        except Exception as error:  # every kind of store has errors of its own
            shutil.rmtree(store.here)
            raise BadInput(f"--output-dir: {url}: {type(error).__name__}: {error}") from error
        return store

    def fetch(self, folder: Path) -> None:
        """Bring everything but checkpoints to a folder of the copy."""
        part = self._part(folder)
        with self._reached():
            self._download(part, folder, checkpoints=False)
        self.saved |= {part / name: state for name, state in seen(folder).items()}

    def save(self) -> None:
        """Write the files of the copy that are new or changed into the store."""
        with self._reached():
            _Upload(self, PurePosixPath(), self.here, self.saved).new(finish=True)

    @contextmanager
    def working_copy(self, folder: Path) -> Generator[Path]:
        """Give a run a folder that begins as the store has it, and bring what it writes into the store."""
        part = self._part(folder)
        with tempfile.TemporaryDirectory(prefix="wordorder-") as scratch:
            copy = Path(scratch).joinpath(*part.parts)  # the names of its parents are those of arm, rate and fold
            copy.mkdir(parents=True)
            with self._reached():
                self._download(part, copy, checkpoints=True)
            upload, ended = _Upload(self, part, copy, seen(copy)), threading.Event()

            def keep_up() -> None:
                while not ended.wait(SECONDS):
                    with suppress(Exception):  # the last one says it
                        upload.new()

            thread = threading.Thread(target=keep_up, daemon=True)
            thread.start()
            try:
                yield copy
            finally:
                ended.set()
                thread.join()
                with self._reached():
                    upload.new(finish=True)

    @contextmanager
    def _reached(self) -> Generator[None]:
        try:
            yield
        except Exception as error:  # every kind of store has errors of its own
            said = f"{type(error).__name__}: {error}"
            raise RunFailed(f"{self.url}: cannot be read or written: {said}; run the same command again") from error

    def _part(self, folder: Path) -> PurePosixPath:
        return PurePosixPath(folder.relative_to(self.here).as_posix())

    def connect(self) -> tuple[Any, str]:
        """Return the file system, and the folder's path in it."""
        from fsspec.core import url_to_fs

        return url_to_fs(self.url)

    def _download(self, part: PurePosixPath, folder: Path, *, checkpoints: bool) -> None:
        system, root = self.connect()
        system.invalidate_cache()
        base = _inside(root, part)
        names = [str(name) for name in system.find(base)] if system.exists(base) else []
        # all names before the first file: whoever may write objects chooses what they are called
        relative = {name: PurePosixPath(name).relative_to(PurePosixPath(base)) for name in names}
        targets = {name: path_below(folder, str(inside)) for name, inside in relative.items() if inside.parts}
        if links := [name for name in targets if _is_local(system) and system.islink(name)]:
            raise ValueError(f"{links[0]!r} is a link, which may lead out of its folder; remove it")
        for name, target in targets.items():
            if (
                name.endswith(_PART)
                or target.name == LOCK
                or (not checkpoints and any(map(is_checkpoint, relative[name].parts)))
            ):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(name, str(target))


class _Upload:
    """Copies the new files of a folder into the store."""

    def __init__(self, store: Store, part: PurePosixPath, folder: Path, sent: Seen) -> None:
        self.system, root = store.connect()
        self.base = _inside(root, part)
        self.folder, self.sent = folder, sent

    def new(self, *, finish: bool = False) -> None:
        """Copy what is new or changed; at the `finish` of a training its last file too."""
        now = seen(self.folder)
        for name in sorted((name for name in now if now[name] != self.sent.get(name)), key=_order):
            if not finish and name.name == METRICS:
                continue
            try:
                self._send(name)
            except FileNotFoundError:
                if self.folder.joinpath(*name.parts).exists():
                    raise
                continue  # a checkpoint that gave way to a newer one
            self.sent[name] = now[name]
        self._forget(name for name in [*self.sent] if name not in now and is_checkpoint(name.parts[0]))

    def _send(self, name: PurePosixPath) -> None:
        source, target = str(self.folder.joinpath(*name.parts)), f"{self.base}/{name}"
        if _is_local(self.system):
            self.system.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
            self.system.put_file(source, target + _PART)
            self.system.mv(target + _PART, target)
        else:
            self.system.put_file(source, target)

    def _forget(self, gone: Iterable[PurePosixPath]) -> None:
        for name in sorted(gone, key=_order, reverse=True):  # manifests first
            with suppress(FileNotFoundError):
                self.system.rm_file(f"{self.base}/{name}")
            del self.sent[name]


def local_folder(url: str) -> Path | None:
    """Return the folder of this machine's files that an address means; None: another store, or `Store.open` fails."""
    from fsspec.core import url_to_fs

    if not url.partition("://")[2].strip("/"):
        return None
    try:
        system, root = cast("tuple[Any, str]", url_to_fs(url.rstrip("/")))
    except Exception:  # every kind of store has errors of its own
        return None
    return Path(root) if _is_local(system) and check_writable(Path(root)) is None else None


def _inside(root: str, part: PurePosixPath) -> str:
    return f"{root}/{part}" if part.parts else root


def _is_local(system: Any) -> bool:
    """Tell whether a file that is being written can be read: an object appears when it is whole."""
    return "file" in system.protocol


def seen(folder: Path) -> Seen:
    """Return size and time of the files of a folder; those whose names begin with a dot are still being written."""
    found = Seen()
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(where, file) for file in files if not file.startswith(".")):
            with suppress(FileNotFoundError):
                state = path.stat()
                found[PurePosixPath(path.relative_to(folder).as_posix())] = state.st_size, state.st_mtime_ns
    return found


def _order(name: PurePosixPath) -> tuple[int, str]:
    return {METRICS: 2, MANIFEST: 1}.get(name.name, 0), str(name)
