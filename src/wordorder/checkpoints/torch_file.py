"""Read torch's two file formats without torch's own reader: a zip archive (since 1.6), and the older stream.

zip::

    NAME/data.pkl     one pickle: the object, in which tensors name their storages by key
    NAME/data/KEY     the numbers of one storage, uncompressed, little-endian
    NAME/byteorder    "little" (newer versions)

stream (the released TUPE checkpoint, of 2020, has this form)::

    pickle: the magic number; pickle: 1001; pickle: sizes and byte order of the machine
    pickle: the object
    pickle: the list of the storages' keys
    for each key, in this order: number of elements, 8 bytes, then the numbers

`inert_pickle` says how a pickle is read, and what a file can and cannot do. A storage is read when a tensor of it is
asked for, so the optimiser's never are.
"""

import io
import struct
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from wordorder.checkpoints.inert_pickle import Machine
from wordorder.checkpoints.inert_records import Damaged, Storage, StoredTensor, printable
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
_HEADER_BYTES = 4096  # each of the stream's first three pickles has far fewer


@dataclass(frozen=True)
class TorchFile:
    """An open torch file.

    Args:
        layout: which of the two formats it has.
        root: the object that was saved, of plain values and the records of `inert_pickle`.
        placeholders: globals outside the closed list, with how often each is named.
        size: of the file, in bytes.
        read: gives the bytes of a storage.
    """

    layout: Literal["zip", "stream"]
    root: Any
    placeholders: Mapping[str, int]
    size: int
    read: Callable[[Storage], bytearray]

    def tensors(self, wanted: Mapping[str, StoredTensor]) -> "dict[str, Tensor]":
        """Read tensors; each storage once.

        Args:
            wanted: by name.

        Raises:
            Damaged: a storage is not in the file as described, or the tensors claim more bytes than the file can hold.
        """
        import torch

        # Each storage once, and tied weights once more: what claims more is a bomb, made of views.
        storages = {tensor.storage.key: tensor.storage for tensor in wanted.values()}
        claimed = [
            sum(storage.itemsize * storage.numel for storage in storages.values()),
            sum(_numel(tensor) * tensor.storage.itemsize for tensor in wanted.values()) // 2,
        ]
        if max(claimed) > self.size:
            raise Damaged(f"its weights claim {max(claimed):,} bytes, more than the file's {self.size:,}")
        flat: dict[str, Tensor] = {}
        for key, storage in storages.items():
            # frombuffer refuses an empty buffer
            dtype = getattr(torch, storage.kind)
            flat[key] = torch.frombuffer(self.read(storage), dtype=dtype) if storage.numel else torch.empty(0).to(dtype)
        return {
            name: flat[tensor.storage.key].as_strided(tensor.size, tensor.stride, tensor.offset)
            for name, tensor in wanted.items()
        }


@contextmanager
def open_torch_file(path: Path) -> Generator[TorchFile]:
    """Read a torch file's object; its tensors can be read within the context.

    Args:
        path: the file.

    Raises:
        BadInput: it is empty, cut short, damaged, or no torch file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        try:
            if not start:
                raise Damaged("it is empty")
            if start.startswith(b"\x1f\x8b"):
                raise Damaged("it is a gzip archive: unpack it (tar -xzf) and name the .pt file in it")
            opened = _open_zip(file, size) if start.startswith(b"PK") else _open_stream(file, size)
            yield opened
        except Damaged as error:
            raise BadInput(f"checkpoint {path}: {error}") from None


@contextmanager
def _zip_faults() -> Generator[None]:
    """Turn every error that a damaged archive can bring about into `Damaged`."""
    try:
        yield
    except Damaged:
        raise
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        EOFError,
        OSError,
        ValueError,
        struct.error,
    ) as error:
        raise Damaged(f"the zip archive is cut short or damaged: {printable(str(error))}") from None


def _open_zip(file: BinaryIO, size: int) -> TorchFile:
    with _zip_faults():
        archive = zipfile.ZipFile(file)
        entries = {entry.filename: entry for entry in archive.infolist()}
    objects = [name for name in entries if name.endswith("/data.pkl")]
    if len(objects) != 1:
        raise Damaged("it is a zip archive, but no torch file (no data.pkl in it)")
    root = objects[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in entries:
        raise Damaged("it is a TorchScript program, not a checkpoint")

    def read(name: str, length: int | None = None) -> bytearray:
        entry = entries.get(f"{root}{name}")
        if entry is None:
            raise Damaged(f"{printable(name)} is missing from the archive")
        # torch compresses nothing; what is compressed here could be a thousand times larger than the file
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.file_size > size:
            raise Damaged(f"{printable(name)} is compressed or encrypted, which torch does not do")
        if length is not None and entry.file_size != length:
            raise Damaged(f"{printable(name)} has {entry.file_size:,} bytes instead of {length:,}")
        data = bytearray(entry.file_size)
        with _zip_faults(), archive.open(entry) as opened:
            stored: Any = opened
            view, done = memoryview(data), 0
            while done < len(data) and (count := stored.readinto(view[done:])):
                done += count
            if done < len(data):  # a read that reaches the end also compares the checksum
                raise Damaged(f"{printable(name)} is cut short")
        return data

    if f"{root}byteorder" in entries and bytes(read("byteorder")) != b"little":
        raise Damaged("its numbers are big-endian; save it again on a little-endian machine")
    machine = Machine()
    content = machine.run(io.BytesIO(read("data.pkl")))
    return TorchFile(
        "zip",
        content,
        dict(machine.placeholders),
        size,
        lambda storage: read(f"data/{storage.key}", storage.itemsize * storage.numel),
    )


def _open_stream(file: BinaryIO, size: int) -> TorchFile:
    machine = Machine()
    try:
        magic = machine.run(file, most_bytes=_HEADER_BYTES)
    except Damaged:
        magic = None
    if type(magic) is not int or magic != MAGIC:
        raise Damaged("it is no torch file")
    if machine.run(file, most_bytes=_HEADER_BYTES) != PROTOCOL:
        raise Damaged("it has an unknown version of torch's file format")
    system: Any = machine.run(file, most_bytes=_HEADER_BYTES)
    if not isinstance(system, dict) or cast("dict[Any, Any]", system).get("little_endian") is not True:
        raise Damaged("its numbers are big-endian; save it again on a little-endian machine")
    root = machine.run(file)
    keys: Any = machine.run(file)
    if not isinstance(keys, list):
        raise Damaged("the list of its storages is missing")
    places: dict[str, int] = {}
    for key in cast("list[Any]", keys):
        storage = machine.storages.get(key) if isinstance(key, str) else None
        if storage is None:
            raise Damaged(f"storage {printable(key)} has no known type")
        head = file.read(8)
        if len(head) < 8 or struct.unpack("<q", head)[0] != storage.numel:
            raise Damaged(f"storage {printable(key)} is cut short or damaged")
        places[storage.key] = file.tell()
        end = places[storage.key] + storage.numel * storage.itemsize
        if end > size:
            raise Damaged(f"it is cut short: {size:,} bytes, but storage {printable(key)} ends at {end:,}")
        file.seek(end)

    def read(storage: Storage) -> bytearray:
        if storage.key not in places:
            raise Damaged(f"storage {printable(storage.key)} is missing")
        file.seek(places[storage.key])
        data = bytearray(storage.numel * storage.itemsize)
        view: Any = file
        if view.readinto(data) != len(data):
            raise Damaged(f"storage {printable(storage.key)} is cut short")
        return data

    return TorchFile("stream", root, dict(machine.placeholders), size, read)


def _numel(tensor: StoredTensor) -> int:
    product = 1
    for length in tensor.size:
        product *= length
    return product
