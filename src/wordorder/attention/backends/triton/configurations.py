"""Sizes of the blocks that each kernel computes at once, from a table by kernel, shape and GPU.

The table, `configurations.json`, holds for each the first blocks of `CANDIDATES` that neither spill registers in a loop
nor exceed shared memory, as the compiler says (`python -m tools.attention_kernels`); `make gpu` measures them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Literal, NamedTuple

import torch

Kernel = Literal["forward", "query_gradients", "query_factors", "key_gradients", "key_factors", "dense_gradients"]
TARGETS = ("sm_80", "sm_86", "sm_90", "sm_100", "gfx942")
"""Families of GPUs: A100; RTX 30, 40 and 50, which have less shared memory; H100 and H200; B200; AMD's MI300."""


class Blocks(NamedTuple):
    """Queries and keys of a tile, warps of a program, and stages of its loads."""

    rows: int
    keys: int
    warps: int
    stages: int


_BY_QUERY = (
    (128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 4, 2), (64, 64, 8, 2), (64, 32, 4, 2), (128, 32, 8, 2), (128, 32, 8, 1),
    (64, 64, 8, 1), (64, 32, 8, 2), (64, 32, 8, 1), (64, 32, 4, 1), (32, 64, 8, 1), (64, 16, 4, 1), (32, 32, 8, 1),
    (32, 32, 4, 1), (32, 16, 4, 1), (16, 32, 4, 1), (32, 16, 8, 1), (16, 32, 8, 1), (16, 16, 2, 1), (16, 16, 4, 1),
    (16, 16, 8, 1),
)  # fmt: skip
_BY_KEY = (
    (64, 128, 8, 3), (64, 128, 8, 2), (64, 64, 4, 2), (64, 64, 8, 2), (32, 64, 4, 2), (32, 64, 8, 2), (32, 128, 8, 2),
    (32, 128, 8, 1), (32, 64, 8, 1), (64, 64, 8, 1), (32, 64, 4, 1), (16, 64, 4, 1), (32, 32, 8, 1), (32, 32, 4, 1),
    (16, 32, 4, 1), (32, 16, 8, 1), (16, 32, 8, 1), (16, 16, 2, 1), (16, 16, 4, 1), (16, 16, 8, 1),
)  # fmt: skip
CANDIDATES: Mapping[Kernel, tuple[tuple[int, int, int, int], ...]] = {
    "forward": (
        (128, 128, 8, 3), (128, 64, 8, 3), (128, 64, 4, 3), (128, 64, 8, 2), (128, 32, 4, 2), (64, 64, 4, 2),
        (64, 32, 4, 2), (64, 32, 4, 1), (64, 32, 8, 1), (32, 32, 4, 1), (32, 16, 4, 1), (16, 16, 4, 1),
    ),
    "query_gradients": _BY_QUERY,
    "query_factors": _BY_QUERY,
    "key_gradients": _BY_KEY,
    "key_factors": _BY_KEY,
    "dense_gradients": (
        (128, 64, 8, 1), (64, 64, 4, 1), (64, 64, 8, 1), (64, 32, 4, 1), (32, 32, 4, 1), (32, 32, 8, 1), (16, 32, 8, 1),
        (16, 16, 4, 1), (16, 16, 2, 1),
    ),
}  # fmt: skip
"""Sizes of `Blocks` to choose from, by kernel, the preferred ones first."""


@dataclass(frozen=True)
class Shape:
    """The facts about a call on which the sizes of blocks depend."""

    width: int
    """Channels of queries and keys, of values, or of the factors but 16, the most of them, as the kernels pad them."""
    ranked: bool
    """The bias has a low-rank part."""
    itemsize: int
    """Bytes of a number of the inputs."""
    target: str
    """One of `TARGETS`."""
    extras: bool = False
    """Dropout, a dense part, a mask tensor or groups of heads: registers and shared memory hold more."""

    @property
    def factors_apart(self) -> bool:
        """Whether the gradients of the factors have launches of their own: for all at once registers do not suffice."""
        return self.ranked and (self.width > 64 or self.itemsize == 4 or self.extras)

    @property
    def entry(self) -> "Shape":
        """The shape under which the table has it.

        Narrower heads take the blocks of 64 channels, float32 and heads of 256 channels those with a low-rank part.
        """
        ranked = self.ranked or self.width > 128 or self.itemsize == 4
        return Shape(max(self.width, 64), ranked, self.itemsize, self.target, self.extras)


def blocks(kernel: Kernel, shape: Shape) -> Blocks:
    """Return the blocks of a kernel for a shape."""
    return table()[kernel, shape.entry]


@lru_cache(maxsize=1)
def table() -> Mapping[tuple[str, Shape], Blocks]:
    """Read the table."""
    text = files("wordorder.attention.backends.triton").joinpath("configurations.json").read_text(encoding="utf-8")
    names = [part.name for part in fields(Shape)]
    rows = json.loads(text)
    return {(row["kernel"], Shape(**{name: row[name] for name in names})): Blocks(*row["blocks"]) for row in rows}


@lru_cache
def target_of(device: torch.device) -> str:
    """Return the family of a GPU; H100's where there is none, for the interpreter."""
    if device.type != "cuda":
        return "sm_90"
    if torch.version.hip:
        return "gfx942"
    return _family(*torch.cuda.get_device_capability(device))


def _family(major: int, minor: int) -> str:
    """Return the family of a compute capability: the 8.x but 8.0, and 12.x, have 99 KiB of shared memory a block."""
    if major < 8 or (major == 8 and minor > 0) or major >= 12:
        return "sm_86"
    return {8: "sm_80", 9: "sm_90"}.get(major, "sm_100")
