"""What the benchmarks share: times of candidates as ratios to a limit, interleaved in one run, and extra memory."""

import ctypes
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import torch


def wait(device: torch.device) -> None:
    """Let an accelerator finish what it was given; a CPU already has."""
    if device.type != "cpu":
        torch.accelerator.synchronize()


def seconds(run: Callable[[], object], device: torch.device, *, wall: bool = False) -> float:
    """Time of one call: the process's CPU time, which a shared machine disturbs least; on a GPU the wall clock."""
    wait(device)
    clock = time.perf_counter if wall or device.type != "cpu" else time.process_time
    started = clock()
    run()
    wait(device)
    return clock() - started


def interleave(
    candidates: Mapping[str, Callable[[], object]],
    *,
    limit: str,
    rounds: int,
    device: torch.device | None = None,
    wall: bool = False,
) -> dict[str, dict[str, Any]]:
    """Time every candidate once a round, in another order each round, after two rounds of warming up.

    The ratio is the median over rounds of the ratio to the limit within the same round, with its quartiles.
    """
    device = device or torch.device("cpu")
    names, times = list(candidates), {name: list[float]() for name in candidates}
    for turn in range(rounds + 2):
        first = turn % len(names)
        for name in names[first:] + names[:first]:  # nothing always runs after the same thing
            taken = seconds(candidates[name], device, wall=wall)
            if turn >= 2:
                times[name].append(taken)
    rows: dict[str, dict[str, Any]] = {}
    for name, taken in times.items():
        low, middle, high = statistics.quantiles([a / b for a, b in zip(taken, times[limit], strict=True)], n=4)
        milliseconds = 1e3 * statistics.median(taken)
        rows[name] = {"ratio": middle, "ratio_quartiles": [low, high], "milliseconds": milliseconds}
    return rows


def extra_memory(run: Callable[[], object]) -> int:
    """Bytes by which the resident memory of this process peaks above where it stood: Linux alone can say it.

    To be called in a process of its own, once.
    """
    ctypes.CDLL(None).malloc_trim(0)  # free memory that the allocator holds would be used first, and not be seen
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # sets the peak to what is resident now
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(name))
    return int(line.split()[1]) * 1024


def in_a_process(script: str, *arguments: str) -> str:
    """What the script prints, run on its own."""
    command = [sys.executable, script, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    packages = {}
    for name in ("torch", "transformers", "x-transformers"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "processor": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "packages": packages,
        "seed": 0,
    }
