"""A checkpoint of a reference code, as a torch file or as safetensors: shapes first, numbers on demand."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from wordorder.conversion.reference_names import listed
from wordorder.conversion.torch_files.foreign import Namespace, Placeholder, printable
from wordorder.conversion.torch_files.torch_file import detached, read_torch_file
from wordorder.errors import BadInput
from wordorder.limits import read_json, safetensors_header

if TYPE_CHECKING:
    from torch import Tensor

Weight = TypeVar("Weight")

_SAFETENSORS_KINDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}


@dataclass(frozen=True, kw_only=True)
class Wrapping:
    """Keys and prefix that a code puts around its weights when it saves them.

    Args:
        state: key of the state dict in a torch file.
        args: key of the settings.
        prefix: what may stand before each weight's name.
        bare: whether a torch file may also be the state dict alone.
    """

    state: str
    args: str
    prefix: str
    bare: bool = False


FAIRSEQ = Wrapping(state="model", args="args", prefix="decoder.")
"""Fairseq wraps an encoder in what it calls a decoder."""


@dataclass(frozen=True, kw_only=True)
class ReferenceFile:
    """An open checkpoint.

    Args:
        layout: "torch zip", "torch stream" or "safetensors".
        shapes: of each weight, by the reference's name without the prefix.
        kinds: of its numbers, by the same name, as torch names them.
        args: of the training run; None where the file has none.
        placeholders: what the file names beside weights and arguments, with how often; nothing of it was touched.
        load: reads weights, by the same names.
    """

    layout: str
    shapes: Mapping[str, tuple[int, ...]]
    kinds: Mapping[str, str]
    args: Mapping[Any, Any] | None
    placeholders: Mapping[str, int]
    load: "Callable[[list[str]], dict[str, Tensor]]"


@contextmanager
def open_reference_file(path: Path, wrapping: Wrapping = FAIRSEQ) -> Generator[ReferenceFile]:
    """Open a checkpoint; its weights can be read within the context.

    Args:
        path: a torch file {"args": ..., "model": ...}, or a state dict that ends in .safetensors.
        wrapping: names of those keys, and what else may be.

    Raises:
        BadInput: there is no such file, it is damaged or something else, or what it calls weights is none.
    """
    try:
        if not path.is_file():
            raise BadInput(f"checkpoint {path} is no file" if path.exists() else f"checkpoint {path} does not exist")
        path.open("rb").close()
    except OSError as error:
        raise BadInput(f"checkpoint {path} cannot be read: {error.strerror}") from None
    opener = _open_safetensors if path.suffix == ".safetensors" else _open_torch
    with opener(path, wrapping) as opened:
        yield opened


@contextmanager
def _open_torch(path: Path, wrapping: Wrapping) -> Generator[ReferenceFile]:
    from torch import Tensor

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
    if not isinstance(root.get(wrapping.state), dict):
        raise BadInput(
            f'checkpoint {path}: has no state dict under "{wrapping.state}"; a checkpoint of the reference code has'
            f" {wrapping.args} and {wrapping.state}, this one has"
            f" {listed([str(key) for key in root if isinstance(key, str)]) or 'nothing'}"
        )
    model = cast("dict[Any, Any]", root[wrapping.state])
    foreign = [
        f"{printable(name)} = {printable(value)}"
        for name, value in model.items()
        if not isinstance(name, str) or not isinstance(value, Tensor)
    ]
    if foreign:
        raise BadInput(f"checkpoint {path}: there are weights that are no plain tensors: {listed(foreign)}")
    tensors = _without_prefix(path, cast("dict[str, Tensor]", model), wrapping.prefix)
    yield ReferenceFile(
        layout=f"torch {file.layout}",
        shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        kinds={name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()},
        args=_fields(path, wrapping.args, root.get(wrapping.args)),
        placeholders=file.placeholders,
        load=lambda names: detached(path, {name: tensors[name] for name in names}),
    )


@contextmanager
def _open_safetensors(path: Path, wrapping: Wrapping) -> Generator[ReferenceFile]:
    from safetensors import SafetensorError, safe_open

    opener: Any = safe_open  # its type lacks the methods of what it opens
    try:
        safetensors_header(path)  # first: what it claims, it must hold
        with opener(path, framework="pt") as file:
            slices: dict[str, Any] = {name: file.get_slice(name) for name in file.keys()}
            names = _without_prefix(path, {name: name for name in slices}, wrapping.prefix)
            yield ReferenceFile(
                layout="safetensors",
                shapes={name: tuple(slices[full].get_shape()) for name, full in names.items()},
                kinds={
                    name: _SAFETENSORS_KINDS.get(kind := str(slices[full].get_dtype()), kind)
                    for name, full in names.items()
                },
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


def _fields(path: Path, key: str, args: object) -> Mapping[object, object] | None:
    if args is None or isinstance(args, Placeholder):
        return None  # told apart by the list of placeholders
    fields = args.fields if isinstance(args, Namespace) else args
    if isinstance(fields, dict):
        return cast("dict[Any, Any]", fields)
    raise BadInput(f"checkpoint {path}: {key} is {printable(args)}, not an argparse.Namespace")


def read_config(path: Path, example: str = '{"encoder_attention_heads": 12}') -> dict[str, object]:
    """Read the arguments of a training run from a JSON file, with the names that they have in a checkpoint's args.

    Args:
        path: such as {"encoder_attention_heads": 12, "dropout": 0.1}.

    Raises:
        BadInput: it cannot be read, or holds no JSON object.
    """
    try:
        value: Any = read_json(path)
    except OSError as error:
        raise BadInput(f"config {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"config {path}: is no JSON: {printable(str(error))}") from None
    if not isinstance(value, dict):
        raise BadInput(f"config {path}: must be a JSON object such as {example}")
    return cast("dict[str, Any]", value)
