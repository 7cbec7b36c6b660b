"""Read a checkpoint of a paper's own code: its weights, and the settings of the run; nothing in the file is run."""

import json
import re
import zipfile
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor

from wordorder.errors import BadInput

Plain = TypeVar("Plain", bool, int, float, str)

NAMED = (
    "argparse.Namespace",
    "fairseq.meters.AverageMeter",
    "fairseq.meters.StopwatchMeter",
    "fairseq.meters.TimeMeter",
    "utils.vocabulary.Vocab",
)
"""Classes that the checkpoints of fairseq's and LaMemo's code name beside tensors. A plain namespace takes the place of
each, so that torch makes no object of theirs and imports none of their modules."""

REMEDY = "load it with the code that made it, and save the model's state_dict() alone"


@dataclass(frozen=True, kw_only=True)
class Code:
    """Describe the checkpoints of one published code."""

    name: str
    state: str
    """Key of the state dict."""
    args: str
    """Key of the settings."""
    prefix: str
    """Prefix that a weight's name may have."""
    table: str
    """Name of the token embeddings, which every model of the code has."""
    output: str
    """Name of the output layer, which a file may leave out where it is the same."""
    example: str
    """Example of settings as JSON, for messages."""


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a checkpoint by the reference's names, and the settings of its run where the file has any."""

    path: Path
    weights: dict[str, Tensor]
    args: Mapping[Any, Any] | None

    def size(self, name: str) -> tuple[int, int]:
        if name not in self.weights:
            raise BadInput(f"checkpoint {self.path}: weights are missing: {name}")
        if self.weights[name].dim() != 2:
            raise BadInput(
                f"checkpoint {self.path}: {name} has shape {tuple(self.weights[name].shape)} instead of two axes"
            )
        rows, columns = self.weights[name].shape
        return rows, columns

    def layers(self, start: str) -> int:
        return len(
            {match[1] for name in self.weights if (match := re.match(rf"{re.escape(start)}(\d{{1,4}})\.", name))}
        )

    def begin(self, start: str) -> bool:
        return any(name.startswith(start) for name in self.weights)


def read_checkpoint(path: Path, code: Code) -> Checkpoint:
    """Read a torch file {state: ..., args: ...}, or a state dict alone as a torch file or .safetensors.

    Raises:
        BadInput: there is no such file, it holds no state dict, or torch refuses it since it would have to run code.
    """
    if not path.is_file():
        raise BadInput(f"checkpoint {path} is no file" if path.exists() else f"checkpoint {path} does not exist")
    try:
        content: Any = load_file(path) if path.suffix == ".safetensors" else _load(path)
    except Exception as error:  # what torch and safetensors raise of a damaged file is of any type
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        reason = next((line for line in lines if "WeightsUnpickler error" in line), lines[0])
        raise BadInput(
            f"checkpoint {path}: is damaged, or cannot be read without running code ({ascii(reason.strip())[1:-1]});"
            f" {REMEDY}"
        ) from None
    root = cast("dict[Any, Any]", content) if isinstance(content, dict) else {}
    if root and all(isinstance(value, Tensor) for value in root.values()):
        root = {code.state: root}
    state = root.get(code.state)
    if not isinstance(state, dict):
        raise BadInput(
            f'checkpoint {path}: has no state dict under "{code.state}"; a checkpoint of the reference code has'
            f" {code.args} and {code.state}, this one has {listed([str(key) for key in root])}; {REMEDY}"
        )
    weights = cast("dict[Any, Any]", state)
    others = [str(name) for name, value in weights.items() if not (isinstance(name, str) and isinstance(value, Tensor))]
    if others:
        raise BadInput(f"checkpoint {path}: there are weights that are no tensors: {listed(others)}")
    short = {name.removeprefix(code.prefix): weight.detach() for name, weight in weights.items()}
    if len(short) < len(weights):
        raise BadInput(f'checkpoint {path}: has weights both with and without "{code.prefix}"')
    args = root.get(code.args)
    args = vars(args) if isinstance(args, Namespace) else args
    return Checkpoint(path, short, cast("dict[Any, Any]", args) if isinstance(args, dict) else None)


def _load(path: Path) -> Any:
    with torch.serialization.safe_globals([(Namespace, name) for name in NAMED]):
        # the numbers of an archive stay in the file until they are used: an optimizer's are never read
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))


def listed(names: Collection[str], most: int = 40) -> str:
    """Join names on one line, without control characters; of very many, the first."""
    shown = ", ".join(ascii(name)[1:-1] for name in list(names)[:most])
    return (shown or "nothing") if len(names) <= most else f"{shown} and {len(names) - most:,} more"


class Settings:
    """The settings of a training run, read one by one; every fault is noted, and the default taken instead."""

    def __init__(self, fields: Mapping[Any, Any]) -> None:
        self.fields = {name: value for name, value in fields.items() if value is not None}
        self.faults: list[str] = []

    def _read(self, name: str, default: Plain, expected: str, fits: Callable[[Any], bool]) -> Plain:
        value = self.fields.get(name, default)
        if fits(value):
            return value
        self.faults.append(f"{name} must be {expected}, got {value!r}")
        return default

    def number(self, name: str, default: int) -> int:
        return self._read(name, default, "an integer", lambda v: type(v) is int)

    def switch(self, name: str, default: bool) -> bool:
        return self._read(name, default, "true or false", lambda v: type(v) is bool)

    def rate(self, name: str, default: float) -> float:
        return float(self._read(name, default, "a number in [0, 1)", lambda v: type(v) in (int, float) and 0 <= v < 1))

    def choice(self, name: str, *values: str) -> str:
        return self._read(name, values[0], f"one of {', '.join(values)} to be converted exactly", values.__contains__)


def read_settings(file: Checkpoint, config: str | Path | Mapping[str, Any] | None, code: Code) -> Settings:
    """Return the settings of the run: the caller's, a mapping or a JSON file, in place of those in the file."""
    if not isinstance(config, str | Path):
        return Settings((file.args or {}) if config is None else config)
    path = Path(config).expanduser()
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"config {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"config {path}: is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(f"config {path}: must be a JSON object such as {code.example}")
    return Settings(cast("dict[Any, Any]", value))
