"""Save nested states (of optimizers, schedulers, generators) as JSON, with tensors in a safetensors file: no pickle."""

import json
import random
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save, save_file  # pyright: ignore[reportUnknownVariableType]  # bare dicts
from torch import Tensor

from wordorder.errors import RunFailed, WordOrderError
from wordorder.files import one_line, read_json


def save_state(folder: Path, name: str, state: Any) -> None:
    """Write a state as <name>.json and, when it holds tensors, <name>.safetensors.

    It is made of dicts with str or int keys, lists, tuples, tensors, numbers, strings and None, nested at will.
    """
    tensors: dict[str, Tensor] = {}
    skeleton = _encode(state, "", tensors)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(skeleton), encoding="utf-8")
    if tensors:
        save_file(tensors, path.with_suffix(".safetensors"))
        path.with_suffix(".safetensors").chmod(path.stat().st_mode)  # safetensors lets nobody else read it


def load_state(folder: Path, name: str) -> Any:
    """Read a state that `save_state` wrote; tensors are on the CPU."""
    path, tensors = folder / f"{name}.safetensors", dict[str, Tensor]()
    try:
        if path.exists():
            tensors = load_file(path)
        return _decode(read_json(folder / f"{name}.json"), tensors)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunFailed(f"{folder}: the state {name!r} cannot be read: {one_line(error)}") from error


@contextmanager
def taken_up(folder: Path, name: str) -> Generator[None]:
    """Raise RunFailed with the name of the file if restoring a readable state fails within the block."""
    try:
        yield
    except WordOrderError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise RunFailed(
            f"{folder / name}.json is not the state of this run ({one_line(error)}); remove {folder.name}, and --resume"
            " goes on from the checkpoint before it"
        ) from error


def pack_state(state: Any) -> bytes:
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(_encode(state, "", tensors)).encode()
    return len(skeleton).to_bytes(8, "little") + skeleton + (save(tensors) if tensors else b"")


def unpack_state(content: bytes) -> Any:
    end = 8 + int.from_bytes(content[:8], "little")
    tensors = load(content[end:]) if len(content) > end else {}
    return _decode(json.loads(content[8:end]), tensors)


def _encode(value: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        # A clone: safetensors refuses tensors that share memory.
        tensors[where] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": where}
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        if not all(isinstance(key, str | int) and not isinstance(key, bool) for key, _ in items):
            raise TypeError(f"state{where}: keys must be strings or integers")
        return {"dict": [[key, _encode(item, f"{where}.{key}", tensors)] for key, item in items]}
    if isinstance(value, list | tuple):
        sequence = cast(list[Any] | tuple[Any, ...], value)
        encoded = [_encode(item, f"{where}.{index}", tensors) for index, item in enumerate(sequence)]
        return {"tuple": encoded} if isinstance(value, tuple) else encoded
    if isinstance(value, np.generic):
        return cast(Any, value).item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"state{where}: cannot write a {type(value).__name__} without pickle")


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        ((kind, content),) = cast(dict[str, Any], value).items()
        if kind == "tensor":
            return tensors[content]
        if kind == "tuple":
            return tuple(_decode(item, tensors) for item in content)
        return {key: _decode(item, tensors) for key, item in content}
    return value


def random_state() -> dict[str, Any]:
    name, keys, position, has_gauss, gauss = cast(tuple[Any, ...], np.random.get_state())
    return {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), position, has_gauss, gauss],
        "torch": torch.random.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_state(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.random.set_rng_state(state["torch"])
    for device, cuda_state in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(cuda_state, device)
