"""A checkpoint of a reference code, as a torch file or as safetensors: its weights, shapes first, and its settings."""

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from wordorder.conversion.pickle_survey import Namespace, Placeholder, printable
from wordorder.conversion.torch_file import detached, read_torch_file
from wordorder.errors import BadInput
from wordorder.limits import read_json, safetensors_header

Weight = TypeVar("Weight")
Plain = TypeVar("Plain", bool, int, float, str)

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_SAFETENSORS_KINDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}


@dataclass(frozen=True, kw_only=True)
class Wrapping:
    """Keys and prefix that a code puts around its weights when it saves them."""

    state: str
    """Key of the state dict in a torch file."""
    args: str
    """Key of the settings."""
    prefix: str
    """The prefixes that a weight's name may have."""
    bare: bool = False
    """Whether a torch file may also be the state dict alone."""


FAIRSEQ = Wrapping(state="model", args="args", prefix="decoder.")
"""Fairseq wraps an encoder in what it calls a decoder."""


@dataclass(frozen=True, kw_only=True)
class ReferenceFile:
    """An open checkpoint. Names of weights are the reference's, without the prefix."""

    layout: str
    """ "torch zip", "torch stream" or "safetensors"."""
    shapes: Mapping[str, tuple[int, ...]]
    kinds: Mapping[str, str]
    """Types of the numbers, as torch names them."""
    args: Mapping[Any, Any] | None
    """Settings of the training run; None where the file has none."""
    placeholders: Mapping[str, int]
    """The names in the file beside weights and settings, with how often; nothing of it was touched."""
    load: Callable[[list[str]], dict[str, Tensor]]

    @property
    def has_halves(self) -> bool:
        """True if some numbers have 16 bits."""
        return any(kind in ("float16", "bfloat16") for kind in self.kinds.values())

    def faults(
        self,
        wanted: Mapping[str, tuple[int | None, ...]],
        *,
        optional: Collection[str],
        ignored: Collection[str],
        code: str,
    ) -> list[str]:
        """List what the weights lack, have too much, or have in another shape (None: any) or type, one line each."""
        faults: list[str] = []
        missing = [name for name in wanted if name not in self.shapes and name not in optional]
        extra = [name for name in self.shapes if name not in wanted and name not in ignored]
        if missing:
            faults.append(f"weights are missing: {listed(missing)}")
        if extra:
            faults.append(f"there are weights that {code}: {listed(extra)}")
        faults += [
            f"{name} has shape {_show(self.shapes[name])} instead of {_show(shape)}"
            for name, shape in wanted.items()
            if name in self.shapes and self.shapes[name] != shape
        ]
        return faults + [
            f"{name} holds {self.kinds[name]} numbers, not floating-point ones"
            for name in wanted
            if self.kinds.get(name, "float32") not in _FLOATS
        ]


@contextmanager
def open_reference_file(path: Path, wrapping: Wrapping = FAIRSEQ) -> Generator[ReferenceFile]:
    """Open a checkpoint, a torch file or .safetensors; its weights can be read within the context."""
    try:
        if not path.is_file():
            raise BadInput(f"checkpoint {path} is no file" if path.exists() else f"checkpoint {path} does not exist")
        path.open("rb").close()
    except OSError as error:
        raise BadInput(f"checkpoint {path} cannot be read: {error.strerror}") from None
    if path.suffix == ".safetensors":
        with _open_safetensors(path, wrapping) as opened:
            yield opened
    else:
        yield _read_torch(path, wrapping)


def _read_torch(path: Path, wrapping: Wrapping) -> ReferenceFile:
    file = read_torch_file(path)
    content = file.root
    if not isinstance(content, dict):
        whole = (
            ": it seems to be a whole module, which cannot be read without running code; save its state_dict() with"
            " the code that made it"
            if wrapping.bare and isinstance(content, Placeholder)
            else ""
        )
        raise BadInput(f"checkpoint {path}: holds {printable(content)}, not the dict of a checkpoint{whole}")
    root = cast("dict[Any, Any]", content)
    if wrapping.bare and root and all(isinstance(value, Tensor) for value in root.values()):
        root = {wrapping.state: root}
    model = root.get(wrapping.state)
    if not isinstance(model, dict):
        raise BadInput(
            f'checkpoint {path}: has no state dict under "{wrapping.state}"; a checkpoint of the reference code has'
            f" {wrapping.args} and {wrapping.state}, this one has"
            f" {listed([str(key) for key in root if isinstance(key, str)]) or 'nothing'}"
        )
    weights = cast("dict[Any, Any]", model)
    foreign = [
        f"{printable(name)} = {printable(value)}"
        for name, value in weights.items()
        if not isinstance(name, str) or not isinstance(value, Tensor)
    ]
    if foreign:
        raise BadInput(f"checkpoint {path}: there are weights that are no plain tensors: {listed(foreign)}")
    tensors = _without_prefix(path, weights, wrapping.prefix)
    return ReferenceFile(
        layout=f"torch {file.layout}",
        shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        kinds={name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()},
        args=_fields(path, wrapping.args, root.get(wrapping.args)),
        placeholders=file.placeholders,
        load=lambda names: detached(path, {name: tensors[name] for name in names}),
    )


@contextmanager
def _open_safetensors(path: Path, wrapping: Wrapping) -> Generator[ReferenceFile]:
    opener: Any = safe_open  # its type lacks the methods of what it opens
    try:
        stored = safetensors_header(path)
        names = _without_prefix(path, {name: name for name in stored}, wrapping.prefix)
        with opener(path, framework="pt") as file:
            yield ReferenceFile(
                layout="safetensors",
                shapes={name: stored[full].shape for name, full in names.items()},
                kinds={name: _SAFETENSORS_KINDS.get(kind := stored[full].kind, kind) for name, full in names.items()},
                args=None,
                placeholders={},
                load=lambda wanted: {name: file.get_tensor(names[name]) for name in wanted},
            )
    except BadInput:
        raise
    except (ValueError, SafetensorError) as error:
        raise BadInput(f"checkpoint {path}: is no whole safetensors file: {printable(str(error))}") from None


def _without_prefix(path: Path, weights: Mapping[str, Weight], prefix: str) -> dict[str, Weight]:
    odd = [name for name in weights if not name.isprintable()]
    if odd:
        raise BadInput(f"checkpoint {path}: has weights with names that cannot be printed: {listed(odd)}")
    short = {name.removeprefix(prefix): weight for name, weight in weights.items()}
    if len(short) < len(weights):
        twice = [name for name in weights if not name.startswith(prefix) and prefix + name in weights]
        raise BadInput(f'checkpoint {path}: has weights both with and without "{prefix}": {listed(twice)}')
    return short


def _fields(path: Path, key: str, args: object) -> Mapping[Any, Any] | None:
    if args is None or isinstance(args, Placeholder):
        return None  # told apart by the list of placeholders
    fields = args.fields if isinstance(args, Namespace) else args
    if isinstance(fields, dict):
        return cast("dict[Any, Any]", fields)
    raise BadInput(f"checkpoint {path}: {key} is {printable(args)}, not an argparse.Namespace")


def listed(names: list[str], most: int = 40) -> str:
    """Join names from a file on one line; of very many, the first."""
    shown = ", ".join(printable(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def _show(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('any' if length is None else str(length) for length in shape)})"


def in_one_dtype(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to float32, which holds every half exactly; to float64 if any of them is."""
    double = any(tensor.dtype == torch.float64 for tensor in tensors.values())
    dtype = torch.float64 if double else torch.float32
    return {name: tensor.to(dtype, copy=True).contiguous().requires_grad_(False) for name, tensor in tensors.items()}


def read_config(path: Path, example: str = '{"encoder_attention_heads": 12}') -> dict[str, object]:
    """Read the settings of a training run from a JSON file, with the names that they have in a checkpoint."""
    try:
        value: Any = read_json(path)
    except OSError as error:
        raise BadInput(f"config {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"config {path}: is no JSON: {printable(str(error))}") from None
    if not isinstance(value, dict):
        raise BadInput(f"config {path}: must be a JSON object such as {example}")
    return cast("dict[str, object]", value)


class Settings:
    """The settings of a training run, read one by one; every fault is noted, and the default taken instead."""

    def __init__(self, given: Mapping[Any, Any], prefix: str = "") -> None:
        self.given = {name: value for name, value in given.items() if value is not None}
        self.prefix = prefix
        self.faults: list[str] = []

    def fault(self, line: str) -> None:
        """Note a line that begins with a setting's name."""
        self.faults.append(f"{self.prefix}{line}")

    def _read(self, name: str, default: Plain, wanted: str, holds: Callable[[Any], bool]) -> Plain:
        value = self.given.get(name, default)
        if holds(value):
            return value
        self.fault(f"{name} must be {wanted}, got {printable(value)}")
        return default

    def number(self, name: str, default: int, *, least: int | None = None) -> int:
        """Read an integer."""
        wanted = {None: "an integer", 1: "a positive integer"}.get(least, f"an integer of at least {least}")
        return self._read(name, default, wanted, lambda value: type(value) is int and (least is None or value >= least))

    def size(self, name: str, shown: int | None, what: str = "") -> int:
        """Read a size that the weights show too; 1 where nothing tells it, for a weight is then missing."""
        if not shown and name not in self.given:
            return 1
        value = self.number(name, shown or 1, least=1)
        if shown is not None and value != shown:
            self.fault(f"{name} is {printable(value)}, but the weights have {shown}{what}")
        return value

    def switch(self, name: str, default: bool) -> bool:
        """Read a flag, true or false."""
        return self._read(name, default, "true or false", lambda value: type(value) is bool)

    def rate(self, name: str, default: float) -> float:
        """Read a probability."""
        return float(self._read(name, default, "a number in [0, 1)", lambda v: type(v) in (int, float) and 0 <= v < 1))

    def positive(self, name: str, default: float) -> float:
        """Read a positive number."""
        return float(self._read(name, default, "a positive number", lambda v: type(v) in (int, float) and v > 0))

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        """Read one of the known values, the first of which is the default."""
        wanted = f"one of {', '.join(known)} to be converted exactly"
        return self._read(name, known[0], wanted, lambda value: value in known)
