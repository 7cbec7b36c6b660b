"""A folder that appears whole or not at all: filled beside its place, flushed to the disk, renamed."""

import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from wordorder.durable import sync_files, sync_folder
from wordorder.errors import BadInput, RunFailed

REPLACEABLE = frozenset(
    {
        "README.md",
        "config.json",
        "conversion.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
)
"""Files that a conversion writes. A folder with anything else in it is not replaced, whatever the caller wishes."""


@contextmanager
def staged_folder(out_dir: Path, *, overwrite: bool = False) -> Generator[Path]:
    """Give a folder to fill; put it in the place of ``out_dir`` if the block ends well, remove it if not.

    Args:
        out_dir: may be missing, with its parents; if not, it must be empty.
        overwrite: it may hold an earlier conversion, which stays until the new one is whole.

    Raises:
        BadInput: it holds something, is no folder, or cannot be made; nothing has been written then.
        RunFailed: the files cannot be flushed or renamed (a full disk).
    """
    shown, out_dir = out_dir, out_dir.resolve()
    try:
        _check(out_dir, shown, overwrite)
        missing = [path for path in (out_dir.parent, *out_dir.parent.parents) if not path.exists()]
    except OSError as error:  # a name that is too long, or a folder that may not be looked into
        raise BadInput(f"OUT_DIR {str(shown)[:200]!r} cannot be written: {error.strerror}") from None
    staging = out_dir.with_name(f".{out_dir.name}.{secrets.token_hex(4)}")
    try:
        try:
            staging.mkdir(parents=True)
        except OSError as error:
            raise BadInput(f"OUT_DIR {shown} cannot be written: {error.strerror}") from None
        yield staging
        try:
            _publish(staging, out_dir)
        except OSError as error:
            raise RunFailed(f"OUT_DIR {shown} could not be written: {error}") from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        for path in missing:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise


def _check(out_dir: Path, shown: Path, overwrite: bool) -> None:
    if not out_dir.exists():
        return
    if not out_dir.is_dir():
        raise BadInput(f"OUT_DIR {shown} is not a folder")
    held = sorted(path.name for path in out_dir.iterdir())
    if held and not overwrite:
        raise BadInput(f"OUT_DIR {shown} is not empty; name another folder, or pass --overwrite")
    others = [name for name in held if name not in REPLACEABLE or not (out_dir / name).is_file()]
    if others:
        raise BadInput(
            f"OUT_DIR {shown} holds more than an earlier conversion ({', '.join(others[:5])}), so it is not"
            " overwritten; name another folder"
        )


def _publish(staging: Path, out_dir: Path) -> None:
    sync_files(staging)
    if out_dir.exists():
        doomed = staging.with_name(f"{staging.name}.old")
        out_dir.rename(doomed)
        try:
            staging.rename(out_dir)
        except OSError:
            doomed.rename(out_dir)
            raise
        shutil.rmtree(doomed, ignore_errors=True)
    else:
        staging.rename(out_dir)
    sync_folder(out_dir.parent)
