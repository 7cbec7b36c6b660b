"""Measure the machine at hand: its matrix products, its memory, and what an operation costs."""

import platform
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, cast

import torch
from torch import nn

from wordorder.inspection.counted_operations import CountedOperations
from wordorder.inspection.hardware import Device

MATRICES = (256, 1024, 2048)
"""Sides of the matrices whose products are timed; the best rate is the peak."""
ARRAYS = (2**18, 2**21, 2**24, 2**27)
"""Bytes that the timed additions move, read and written, from what a core's own cache holds to what none does."""


def measure_here(*, seconds: float = 1.0, half: bool = False) -> Device:
    """Measure the device that training would use: the accelerator if there is one, the CPU otherwise.

    Each figure is the median of what was seen in its time; threads are those that torch has. Other work on the machine
    makes it slower, here as in training.

    Args:
        seconds: for matrix products, and as long for the memory.
        half: measure products in bf16 too; otherwise they count as fast as those in float32.
    """
    accelerator = torch.accelerator.current_accelerator()
    device = accelerator if accelerator is not None else torch.device("cpu")
    products = {dtype: _product_rate(dtype, device, seconds) for dtype in (torch.float32, torch.bfloat16)[: 1 + half]}
    rates = [(size, _moving_rate(size, device, seconds / len(ARRAYS))) for size in ARRAYS]
    on_cpu = device.type == "cpu"
    return Device(
        name="here",
        bf16_flops=products.get(torch.bfloat16, products[torch.float32]),
        float32_flops=products[torch.float32],
        memory_bytes=_memory(device),
        bandwidth=(*((size, rate) for size, rate in rates[:-1]), (float("inf"), rates[-1][1])),
        node_link=rates[-1][1],  # processes of one machine meet in its memory
        network=rates[-1][1],
        per_node=max(1, torch.accelerator.device_count()) if not on_cpu else 1,
        source=f"measured on {_name(device)}, torch {torch.__version__}, {torch.get_num_threads()} threads",
        launch=_seconds_an_operation(device, seconds / 2),
        asynchronous=not on_cpu,
        attained=True,
        nvlink=False,
    )


def typical_time(work: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Return the median time of something that is repeated for so many seconds, at least three times.

    A CPU that computes with one thread is timed by its own clock, which does not run while others have it.

    Args:
        work: repeated; its first run is not timed.
        device: waited for.
        seconds: to go on.
    """
    clock = time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    work()
    wait_for(device)
    found: list[float] = []
    begun = time.perf_counter()
    while len(found) < 3 or time.perf_counter() - begun < seconds:
        start = clock()
        work()
        wait_for(device)
        found.append(clock() - start)
    return median(found)


def wait_for(device: torch.device) -> None:
    """Wait until all that was issued is done; a CPU is never behind."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _product_rate(dtype: torch.dtype, device: torch.device, seconds: float) -> float:
    sides = MATRICES if device.type == "cpu" else (4096, 8192)
    found: list[float] = []
    for side in sides:
        a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
        found.append(2 * side**3 / typical_time(partial(torch.mm, a, b), device, seconds / len(sides)))
    return max(found)


def _moving_rate(size: int, device: torch.device, seconds: float) -> float:
    a, b, c = (torch.ones(size // 12, device=device) for _ in range(3))
    return size / typical_time(partial(torch.add, a, b, out=c), device, seconds)


def _seconds_an_operation(device: torch.device, seconds: float) -> float:
    """Return the seconds that issuing an operation takes.

    A layer too small to compute anything is run forward and backward, and its time divided by its operations.
    """
    layer = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8)).to(device)
    given = torch.ones(2, 8, device=device)

    def step() -> None:
        for parameter in layer.parameters():
            parameter.grad = None
        layer(given).sum().backward()

    with CountedOperations(layer, heads=(), vocabulary=0) as counted:
        step()
    return typical_time(step, device, seconds) / counted.operations.total()


def _memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(cast("Any", torch.cuda).get_device_properties(device).total_memory)
    import psutil

    return float(psutil.virtual_memory().total)


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()} CPU"
