"""Read torch's two file formats by `torch.load(weights_only=True)`: a zip archive (since 1.6), and the older stream.

zip::

    NAME/data.pkl     one pickle: the object, in which tensors name their storages by key
    NAME/data/KEY     the numbers of one storage, uncompressed

stream (the released TUPE checkpoint, of 2020, has this form)::

    pickle: the magic number; pickle: 1001; pickle: sizes and byte order of the machine
    pickle: the object
    pickle: the list of the storages' keys
    for each key, in this order: number of elements, 8 bytes, then the numbers

Nothing that the file names is imported or called: torch knows a closed list of its own functions, and finds a
`Placeholder` for every other name. `pickle_survey` looks first at what the file asks for. The numbers of an archive
stay in the file until they are used; a stream is read whole.
"""

import io
import math
import mmap
import warnings
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from wordorder.conversion.pickle_survey import Damaged, Placeholder, Survey, printable
from wordorder.errors import BadInput

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
MOST_BYTES = 64 * 2**20
"""Most bytes of an archive's pickle. That of BERT-Base's size with Adam's state has 57 kB."""


@dataclass(frozen=True)
class TorchFile:
    """The contents of a torch file."""

    layout: Literal["zip", "stream"]
    root: Any
    """The object that was saved, of plain values, tensors, `Placeholder` and `Namespace`."""
    placeholders: Mapping[str, int]
    """Names that were neither imported nor called, with how often the file has each."""


def read_torch_file(path: Path) -> TorchFile:
    """Read a torch file."""
    survey = Survey()
    with path.open("rb") as file:
        start = file.read(4)
    try:
        if not start:
            raise Damaged("it is empty")
        if start.startswith(b"\x1f\x8b"):
            raise Damaged("it is a gzip archive: unpack it (tar -xzf) and name the .pt file in it")
        layout: Literal["zip", "stream"] = "zip" if start.startswith(b"PK") else "stream"
        with warnings.catch_warnings(), _torch_alone() as allow:
            warnings.simplefilter("ignore")
            (_survey_zip if layout == "zip" else _survey_stream)(path, survey)
            allow([(stand_in, name) for name, stand_in in survey.stand_ins.items()])
            allow([(Placeholder, "placeholder")])  # gives their states to its instances; no pickle has such a name
            root = torch.load(path, map_location="cpu", weights_only=True, mmap=layout == "zip", encoding="latin1")
    except Damaged as error:
        raise BadInput(f"checkpoint {path}: {error}") from None
    except Exception as error:  # a damaged file can raise anything in pickletools, zipfile and torch
        reason = next((line for line in str(error).splitlines() if line), type(error).__name__)
        raise BadInput(f"checkpoint {path}: it is cut short or damaged ({printable(reason)})") from None
    return TorchFile(layout, root, dict(survey.placeholders))


def detached(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors without gradients, if they are not larger than the file: views can repeat a number for ever."""
    size = path.stat().st_size
    both = sum(math.prod(tensor.shape) * tensor.element_size() for tensor in tensors.values())
    claimed = both // 2  # tied ones are there twice
    if claimed > size:
        raise BadInput(f"checkpoint {path}: its weights claim {claimed:,} bytes, more than the file's {size:,}")
    return {name: tensor.detach() for name, tensor in tensors.items()}


@contextmanager
def _torch_alone() -> Generator[Any]:
    """Put aside the classes that the program has allowed torch to make, and allow others through what is yielded."""
    serialization: Any = torch.serialization
    others = serialization.get_safe_globals()
    try:
        serialization.clear_safe_globals()
        yield serialization.add_safe_globals
    finally:
        serialization.clear_safe_globals()
        serialization.add_safe_globals(others)


def _survey_zip(path: Path, survey: Survey) -> None:
    """Check an archive's entries and its pickle; the numbers are compared with their checksums."""
    size = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename.lower(): entry for entry in archive.infolist()}
        objects = [name for name in entries if name.endswith("/data.pkl")]
        if len(objects) != 1 or len(entries) < len(archive.infolist()):
            raise Damaged("it is a zip archive, but no torch file (no data.pkl in it, or two)")
        root = objects[0].removesuffix("data.pkl")
        if f"{root}constants.pkl" in entries:
            raise Damaged("it is a TorchScript program, not a checkpoint")
        for name, entry in entries.items():
            # torch compresses nothing; what is compressed here could be a thousand times larger than the file
            if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.file_size > size:
                raise Damaged(f"{printable(name)} is compressed or encrypted, which torch does not do")
        if sum(entry.file_size for entry in entries.values()) > size:
            raise Damaged("its entries are larger than the file")
        if entries[objects[0]].file_size > MOST_BYTES:
            raise Damaged("a pickle is larger than any checkpoint's")
        survey.follow(io.BytesIO(archive.read(entries[objects[0]])))
        for key, length in survey.storages.items():
            entry = entries.get(f"{root}data/{key}".lower())
            if entry is None:
                raise Damaged(f"data/{printable(key)} is missing from the archive")
            if entry.file_size != length:
                raise Damaged(f"data/{printable(key)} has {entry.file_size:,} bytes instead of {length:,}")
        if (changed := archive.testzip()) is not None:
            raise Damaged(f"{printable(changed)} is cut short or damaged (its checksum is another)")


def _survey_stream(path: Path, survey: Survey) -> None:
    """Check a stream's five pickles, and that the storages fill the rest of it."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:1] != b"\x80" or survey.follow(data) != MAGIC:
            raise Damaged("it is no torch file")
        if survey.follow(data) != PROTOCOL:
            raise Damaged("it has an unknown version of torch's file format")
        survey.follow(data)
        survey.follow(data)
        keys: Any = survey.follow(data)
        if not isinstance(keys, list) or sorted(map(str, cast("list[Any]", keys))) != sorted(survey.storages):
            raise Damaged("the list of its storages does not fit its tensors")
        end = data.tell() + sum(8 + length for length in survey.storages.values())
        if end > len(data):
            raise Damaged(f"it is cut short: {len(data):,} bytes, but its storages end at {end:,}")
