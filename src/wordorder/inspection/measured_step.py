"""Run a few steps of a model on random data, timed and weighed, beside what was predicted of them."""

import ctypes
import gc
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from wordorder.inspection.hardware import Device
from wordorder.inspection.machine import typical_time, wait_for
from wordorder.inspection.prediction import Layout, Prediction, predict
from wordorder.inspection.traced_step import Step, checkpointed, step_inputs, trace
from wordorder.models import build_model

SECONDS = 3.0
"""Seconds for which steps are repeated; the median counts, as in `measure_here`."""
_WATCH_EVERY = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Time and memory of a step, measured beside predicted."""

    predicted: Prediction
    seconds: float
    """The median of the measured steps."""
    memory_bytes: float
    """The most that was in use while they ran, less what was in use before the model was built."""

    @property
    def time_ratio(self) -> float:
        """Measured seconds divided by predicted ones."""
        return self.seconds / self.predicted.seconds

    @property
    def memory_ratio(self) -> float:
        """Measured bytes divided by predicted ones."""
        return self.memory_bytes / self.predicted.memory.total


def check_prediction(step: Step, device: Device, *, model_flops_per_token: float, seconds: float = SECONDS) -> Check:
    """Train on random tokens for a few steps, and compare with what is predicted of them.

    Nothing of the prediction is fitted to it: the device's rates are measured on matrices and arrays of their own.
    Memory is that of the process on a CPU (its resident set, which the allocator may keep larger than what is in use),
    what tensors took on CUDA. The steps are those of one process, without a data loader, evaluation or saving.

    Args:
        step: of one process.
        device: what `measure_here` found.
        model_flops_per_token: see `predict`.
        seconds: of measured steps.
    """
    accelerator = torch.accelerator.current_accelerator()
    where = accelerator if accelerator is not None else torch.device("cpu")
    traced = trace(step, device="cpu" if where.type == "cpu" else "gpu")
    predicted = predict(step, traced, Layout(devices=1), device, model_flops_per_token=model_flops_per_token)
    _run(_small(where))  # what torch makes ready at its first step is no part of the model's memory
    gc.collect()
    watch = _Watch(where)
    model: Any = build_model(step.config, step.task, seed=0)
    model.to(where).train()
    if step.checkpointing:
        model.base_model.apply(checkpointed)
    token_ids = torch.randint(step.config.vocab_size, (step.rows, step.length), device=where)
    with torch.no_grad():
        inputs = step_inputs(model, step, token_ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    one = partial(_one_step, model, inputs, optimizer, step, where)
    peak = watch.during(one)
    found = typical_time(one, where, seconds)
    return Check(predicted=predicted, seconds=found, memory_bytes=peak)


def _one_step(model: nn.Module, inputs: dict[str, Any], optimizer: Any, step: Step, where: torch.device) -> None:
    for _ in range(step.accumulation):
        with torch.autocast(where.type, torch.bfloat16, enabled=step.precision == "bf16"):
            output: Any = model(**inputs)
            loss = output.loss if output.loss is not None else output.logits.mean()
        loss.backward()
    if step.clipped:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def _small(where: torch.device) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64)).to(where)


def _run(model: nn.Module) -> None:
    parameters = list(model.parameters())
    optimizer: Any = torch.optim.AdamW(parameters)
    loss = model(torch.ones(64, 64, device=parameters[0].device)).sum()
    loss.backward()
    optimizer.step()


class _Watch:
    """Measures the most memory in use, beyond what is in use when it is made."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        _give_back()
        self._before = self._now()

    def _now(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.memory_allocated(self._device)
        return psutil.Process().memory_info().rss

    def during(self, work: Callable[[], object], *, times: int = 2) -> int:
        """Return the most bytes in use while something is done.

        It is done twice, because optimizers make their state in the first step.
        """
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            for _ in range(times):
                work()
            wait_for(self._device)
            return torch.cuda.max_memory_allocated(self._device) - self._before
        kernel = _forget_peak()
        most, stop = [self._now()], threading.Event()

        def look() -> None:
            while not stop.wait(_WATCH_EVERY):
                most[0] = max(most[0], self._now())

        thread = threading.Thread(target=look, name="memory", daemon=True)
        thread.start()
        try:
            for _ in range(times):
                work()
        finally:
            stop.set()
            thread.join()
        return max(most[0], self._now(), _peak() if kernel else 0) - self._before


def _give_back() -> None:
    """Let the allocator return what it keeps of earlier work, which would hide what comes; glibc can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _forget_peak() -> bool:
    """Let the kernel begin anew with the largest resident set, proc(5), clear_refs; False where it does not."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _peak() -> int:
    """Return the largest resident set, proc(5), VmHWM."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return 1024 * int(found[1]) if found else 0
