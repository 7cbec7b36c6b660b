"""Folders as one value that a file can hold: the seeds of past failures are kept so."""

import base64
import json
from pathlib import Path


def pack(folder: Path) -> dict[str, bytes]:
    """The files of a folder by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def unpack(files: dict[str, bytes], folder: Path) -> None:
    """Put files into a folder, in the place of what it held."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def to_bytes(files: dict[str, bytes]) -> bytes:
    """A seed's content: JSON, text as it is where it is text."""

    def shown(content: bytes):
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(content).decode()}

    return json.dumps({name: shown(content) for name, content in files.items()}, indent=1).encode()


def from_bytes(content: bytes) -> dict[str, bytes]:
    """The files of a seed."""
    return {
        name: value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])
        for name, value in json.loads(content).items()
    }
