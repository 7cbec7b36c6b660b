"""Read files that may be a stranger's, within limits: JSON, TOML, names of files and safetensors headers.

So many bytes and no more, nested so deep and no deeper, from a plain file. A file that cannot be read is an `OSError`;
what is wrong with its content is a `ValueError`, whatever the parser underneath raises.
"""

import errno
import glob
import json
import math
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

_Model = TypeVar("_Model", bound="BaseModel")

MOST_JSON = 256 * 2**20
"""Most bytes of a JSON file. The largest that this package reads are tokenisers and results: some tens of megabytes."""
MOST_TOML = 2**20
"""Most bytes of a TOML text. The longest recipe of this repository has 6 kB."""
MOST_DEEP = 100
"""Most lists and tables within one another. What this package writes is nested about ten deep."""
MOST_PARTS = 16
"""Most parts of a dotted TOML key or of a table's name: the parser's memory grows with their square."""
MOST_WORDS = 64 * 2**20
"""Most bytes of a list of words; Transformer-XL's 793,471 words of the One Billion Word corpus have 8 MB."""
MOST_UNPACKED, OFTEN_UNPACKED, TIMES_UNPACKED = 4 * 2**30, 2**28, 100
"""Bytes that a packed file may unpack to: the first number at most, and beyond the second no more than so many times
its own size. Texts shrink to a third or a tenth, repeated ones to a fiftieth; gzip can pack a thousand zeros into a
byte."""
MOST_FOLDERS = 100_000
"""Most folders that a glob goes through."""
MOST_COUNT, MOST_SEED = 2**31 - 1, 2**32 - 1
"""Most steps, epochs, examples and the like; and the largest seed, as NumPy takes no larger one."""
MOST_THREADS, MOST_WORKERS = 1024, 256
"""Most threads of a process, and processes side by side: the largest machines have some hundreds of cores."""
MOST_ARMS, MOST_FOLDS, MOST_RUNS = 500, 10_000, 100_000
"""Most arms of a comparison, folds, and trainings of all arms, folds, seeds and rates."""
MOST_CLASSES, MOST_BEAMS, MOST_TOKENS = 1_000_000, 1024, 2**24
"""Most classes, for each of which transformers makes a name; beams of a search; and tokens of a vocabulary."""
MOST_HEADER = 16 * 2**20
"""Most bytes of a safetensors header, which has about 100 for each tensor; the format itself allows 100 MB."""

# A string without an end reaches to where the parser gives up, so that none is looked for twice.
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")


def read_bytes(path: Path, most: int = MOST_JSON) -> bytes:
    """Return the content of a plain file."""
    size = path.stat().st_size
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path.is_file():
        raise ValueError(f"{path.name} is no file")
    if size > most:
        raise ValueError(f"{path.name} has {size:,} bytes, more than the {most:,} that are read")
    with path.open("rb") as file:
        return file.read(most)  # it may have grown since


def check_plain(path: Path) -> None:
    """Refuse a pipe, which would wait for somebody to write, and a device, which may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def most_unpacked(path: Path) -> int:
    """Return the number of bytes that a packed file may unpack to, see `MOST_UNPACKED`."""
    return min(MOST_UNPACKED, max(OFTEN_UNPACKED, TIMES_UNPACKED * path.stat().st_size))


def matches(pattern: str) -> Iterator[str]:
    """Yield the paths that a glob matches, unsorted; `**` stands for folders at any depth, those behind links too.

    A link to a folder that lies around it is not followed: the standard library goes round in it for hours.
    """
    return _matches(pattern, iter(range(MOST_FOLDERS)))


def _matches(pattern: str, left: Iterator[int]) -> Iterator[str]:
    parts = pattern.split(os.sep)
    if "**" not in parts:
        yield from glob.iglob(pattern)
        return
    first = parts.index("**")
    start, rest = os.sep.join(parts[:first]) or (os.curdir if first == 0 else os.sep), parts[first + 1 :]
    waiting = [(folder, frozenset({os.path.realpath(folder)})) for folder in glob.iglob(start) if os.path.isdir(folder)]
    while waiting:
        folder, around = waiting.pop()
        if next(left, None) is None:
            raise ValueError(f"it goes through more than {MOST_FOLDERS:,} folders; name one that has fewer")
        yield from _matches(os.path.join(glob.escape(folder), *(rest or "*")), left)
        for inner in glob.iglob(os.path.join(glob.escape(folder), "*", "")):  # ends in a separator: folders alone
            place = os.path.realpath(inner)
            if place not in around:
                waiting.append((inner.rstrip(os.sep), around | {place}))


def read_json(path: Path, most: int = MOST_JSON) -> Any:
    """Read a JSON file and return its value."""
    return parse_json(read_bytes(path, most))


def read_model(path: Path, kind: type[_Model]) -> _Model:
    """Read a JSON file as a pydantic model."""
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
    """Parse a JSON text and return its value."""
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if text.count("{") + text.count("[") > MOST_DEEP:  # else it cannot be deeper
        check_depth(value)
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file and return its tables."""
    return parse_toml(read_bytes(path, MOST_TOML).decode("utf-8").replace("\r\n", "\n"))


def parse_toml(text: str) -> dict[str, object]:
    """Parse a TOML text and return its tables."""
    if len(text) > MOST_TOML:
        raise ValueError(f"it has {len(text):,} characters, more than the {MOST_TOML:,} that are read")
    if _LONG_KEY.search(_STRING_OR_COMMENT.sub("s", text)):  # a quoted part of a key is a part too
        raise ValueError(f"it has a dotted key of more than {MOST_PARTS} parts")
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    check_depth(tables)
    return tables


def check_depth(value: object, most: int = MOST_DEEP) -> None:
    """Refuse a value that nests so deep that walking through it would end in a RecursionError somewhere else."""
    level: list[Any] = [[value]]
    for _ in range(most + 1):
        held = chain.from_iterable(outer.values() if hasattr(outer, "values") else outer for outer in level)
        level = [inner for inner in held if isinstance(inner, dict | list)]
        if not level:
            return
    raise ValueError(f"it is nested more than {most} deep")


def is_plain_name(name: object) -> bool:
    """Return whether a name that a file gives means a file beside it, and nothing elsewhere.

    No separator of any system, no drive, not the folder itself or the one above it, no control character.
    """
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) < 256 or name in (".", ".."):
        return False
    return name.isprintable() and not any(mark in name for mark in "/\\:")


@dataclass(frozen=True, slots=True)
class StoredShape:
    """The type and shape of a tensor, as a safetensors header gives them."""

    kind: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of entries of the tensor."""
        return math.prod(self.shape)


def safetensors_header(path: Path) -> dict[str, StoredShape]:
    """Read type and shape of the tensors of a safetensors file by name, from its header alone.

    safetensors itself holds every claim against the file, but allows a header of 100 MB.
    """
    import safetensors

    library: Any = safetensors  # it has types in part
    size = path.stat().st_size
    if not path.is_file():
        raise ValueError(f"{path.name} is no file")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise ValueError(f"{path.name} is cut short: its header claims {length:,} bytes of {size:,}")
    if length > MOST_HEADER:
        raise ValueError(f"{path.name} has a header of {length:,} bytes, more than the {MOST_HEADER:,} that are read")
    try:
        with library.safe_open(path, "pt") as file:
            stored = {name: file.get_slice(name) for name in file.keys()}
            return {name: StoredShape(one.get_dtype(), tuple(one.get_shape())) for name, one in stored.items()}
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path.name} has a header that is wrong: {one_line(error)}") from None


def one_line(error: object, most: int = 300) -> str:
    """Return the message of an error on one line, short, without control characters."""
    words = " ".join(str(error).split()) or type(error).__name__
    shown = words if len(words) <= most else f"{words[:most]}..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in shown)
