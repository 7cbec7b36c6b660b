"""Values that a pickle may become here: plain ones, and five inert records in place of everything else."""

from dataclasses import dataclass, field
from typing import Any, cast

MOST_AXES = 8
"""Most axes of a tensor."""

STORAGES: dict[str, tuple[str, int]] = {
    "torch.DoubleStorage": ("float64", 8),
    "torch.FloatStorage": ("float32", 4),
    "torch.HalfStorage": ("float16", 2),
    "torch.BFloat16Storage": ("bfloat16", 2),
    "torch.LongStorage": ("int64", 8),
    "torch.IntStorage": ("int32", 4),
    "torch.ShortStorage": ("int16", 2),
    "torch.CharStorage": ("int8", 1),
    "torch.ByteStorage": ("uint8", 1),
    "torch.BoolStorage": ("bool", 1),
    "torch.ComplexFloatStorage": ("complex64", 8),
    "torch.ComplexDoubleStorage": ("complex128", 16),
}
"""Global -> torch's name of the element type, and bytes an element."""

UNDERSTOOD = frozenset(
    {
        *STORAGES,
        "collections.OrderedDict",
        "argparse.Namespace",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_parameter",
    }
)
"""The closed list: names that the machine knows a record for. None of them is imported either."""


class Damaged(ValueError):
    """The bytes are no whole pickle of the kind that torch writes."""


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder:
    """Stands for a global outside the closed list, and for all that the file makes with it; does nothing.

    Args:
        name: module and name as the file has them, made printable.
    """

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A global of the closed list, before the file uses it."""

    name: str


@dataclass(slots=True, eq=False)
class Namespace:
    """Fields that the file gives to an `argparse.Namespace`."""

    fields: dict[Any, Any] = field(default_factory=dict[Any, Any])


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """A run of numbers elsewhere in the file.

    Args:
        key: its name there.
        kind: torch's name of the element type.
        itemsize: bytes an element.
        numel: elements.
    """

    key: str
    kind: str
    itemsize: int
    numel: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A view of a storage, read from the file only when somebody asks; it lies within its storage, which was checked.

    Args:
        storage: where its numbers are.
        offset: of its first element, in elements.
        size: elements along each axis.
        stride: elements between neighbours along each axis.
    """

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def printable(text: object, most: int = 120) -> str:
    """Return a name or value from the file on one line, without control characters, and short.

    Args:
        text: a plain value, or anything else, of which the type alone is shown.
        most: characters.
    """
    if isinstance(text, Placeholder):
        return f"<{text.name}>"
    if isinstance(text, str):
        shown = ascii(text[: most + 1])[1:-1]
    elif text is None or isinstance(text, bool | float) or (isinstance(text, int) and text.bit_length() < 256):
        shown = repr(text)
    else:
        shown = f"a value of type {type(text).__name__}"
    return shown if len(shown) <= most else f"{shown[:most]}..."


def plain_tensor(arguments: tuple[Any, ...]) -> StoredTensor | None:
    """Make a tensor from (storage, offset, size, stride, requires_grad, hooks[, metadata]); None if it is not plain."""
    if len(arguments) not in (6, 7) or not isinstance(arguments[0], Storage) or not is_nothing(arguments[5:]):
        return None
    storage, offset, size, stride = arguments[:4]
    if not _are_lengths(size) or not _are_lengths(stride) or len(size) != len(stride):
        return None
    if type(offset) is not int or offset < 0:
        return None
    if 0 not in size:
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if last >= storage.numel:
            raise Damaged(f"a tensor reaches beyond its storage {printable(storage.key)}")
    return StoredTensor(storage, offset, size, stride)


def _are_lengths(value: Any) -> bool:
    if not isinstance(value, tuple) or len(numbers := cast("tuple[Any, ...]", value)) > MOST_AXES:
        return False
    return all(type(number) is int and 0 <= number < 2**60 for number in numbers)


def is_nothing(values: tuple[Any, ...]) -> bool:
    """Return whether hooks, metadata and the like, where there are any, are empty."""
    return all(value is None or value == {} for value in values)
