"""Find the devices to train on, and assign them to worker processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wordorder.training import Recipe

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the devices that a process sees; torch reads it when it first looks for them."""


def devices_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the CUDA devices of this process, as CUDA_VISIBLE_DEVICES names them; none if the recipe uses the CPU."""
    import torch

    if recipe.training.get("use_cpu"):
        return ()
    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return tuple(named[:count] if named else map(str, range(count)))


def placements(devices: Sequence[str], *, workers: int, runs: int) -> list[dict[str, str]]:
    """Return the environment of each worker process; an empty list if runs are trained one after the other here.

    Every CUDA device has a worker, which sees no other device; more workers than devices share them in turn, and more
    workers than runs would have nothing to do. Without CUDA devices (a CPU, or MPS, which is one device) there are as
    many workers as the recipe asks for.

    Args:
        devices: from `devices_of`.
        workers: `compare.workers`.
        runs: how many trainings there are.
    """
    if workers == 1 and len(devices) < 2:
        return []
    count = max(1, min(max(workers, len(devices)), runs))
    return [{VISIBLE: devices[number % len(devices)]} if devices else {} for number in range(count)]
