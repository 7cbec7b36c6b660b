"""Sizes of the blocks that each kernel computes at once, chosen by its shapes and the GPU."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Kernel = Literal["forward", "query_gradients", "key_gradients", "dense_gradients"]


class Blocks(NamedTuple):
    """Queries and keys of a tile, warps of a program, and stages of its loads."""

    rows: int
    keys: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Shape:
    """The facts about a call on which the sizes of blocks depend."""

    width: int
    """Channels of queries and keys or of values, the larger, as the kernels pad them: 16, 32, 64, 128 or 256."""
    rank: int
    """Channels of the low-rank factors, as the kernels pad them; 0 without."""
    itemsize: int
    """Bytes of a number of the inputs."""


def blocks(kernel: Kernel, shape: Shape) -> Blocks:
    """Return the blocks of a kernel for a shape."""
    wide = shape.width + shape.rank > 160
    if shape.itemsize == 4:
        return Blocks(32, 32, 4, 1)
    if kernel == "forward":
        return Blocks(64, 32, 4, 2) if wide else Blocks(128, 64, 4 if shape.width <= 64 and not shape.rank else 8, 3)
    if kernel == "dense_gradients":
        return Blocks(64, 64, 4, 2)
    return Blocks(32, 32, 4, 2) if wide else Blocks(64, 64, 4 if shape.width < 64 else 8, 2)
