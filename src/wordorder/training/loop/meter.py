"""Measure seconds, tokens and memory of training."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from torch import Tensor

from wordorder.tasks.scores import IGNORED

_SAMPLE_EVERY = 0.05


class Meter:
    """Measures training only while it runs; `pause` it around everything that is not training.

    Peak memory means: on CUDA the most that tensors took at once during training (max_memory_allocated); elsewhere the
    largest resident set of the whole process seen while training, sampled every 50 ms. The latter includes the
    interpreter and its libraries (some 400 MB), the data, and what the allocator keeps from earlier work: compare it
    only between runs that each had a process of their own, which those of a comparison have not.

    With `targets`, labels are tokens beside the inputs, as translations are; they are counted too.
    """

    def __init__(self, device: torch.device, *, targets: bool = False) -> None:
        self._targets = targets
        self.seconds = 0.0
        """Seconds of training so far, with those before a resumption once they are added."""
        self.peak_bytes = 0
        """Largest memory seen so far; see the class for its meaning."""
        self._tokens = 0
        self._padded: Tensor | None = None
        self._device = device
        self._since: float | None = None
        self._stop = threading.Event()
        self._sampler: threading.Thread | None = None

    def resume(self) -> None:
        if self._since is not None:
            return
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
        elif self._sampler is None:
            self._sampler = threading.Thread(target=self._sample, name="memory", daemon=True)
            self._sampler.start()
        self._since = time.perf_counter()

    def pause(self) -> None:
        if self._since is None:
            return
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            self.peak_bytes = max(self.peak_bytes, torch.cuda.max_memory_allocated(self._device))
        else:
            self.peak_bytes = max(self.peak_bytes, psutil.Process().memory_info().rss)
        self.seconds += time.perf_counter() - self._since
        self._since = None

    def close(self) -> None:
        self.pause()
        self._stop.set()
        if self._sampler is not None:
            self._sampler.join()
            self._sampler = None

    def count(self, batch: dict[str, Any]) -> None:
        """Count the tokens of a batch, padding left out, without waiting for the device."""
        mask = batch.get("attention_mask")
        masks = [] if mask is None else [mask]
        if mask is None:
            self._tokens += batch["input_ids"].numel()
        if self._targets:
            masks.append(batch["labels"] != IGNORED)
        for present in masks:
            self._padded = present.sum() if self._padded is None else self._padded + present.sum()

    @property
    def tokens(self) -> int:
        return self._tokens + (0 if self._padded is None else int(self._padded))

    def tokens_for_display(self) -> int:
        """Return `tokens` without padded batches on an accelerator, so that nothing waits for the device."""
        if self._padded is None or self._padded.device.type != "cpu":
            return self._tokens
        return self.tokens

    def state(self) -> dict[str, float]:
        return {"seconds": self.seconds, "tokens": self.tokens, "peak_bytes": self.peak_bytes}

    def load_state(self, state: dict[str, Any]) -> None:
        self.seconds, self._tokens, self.peak_bytes = state["seconds"], state["tokens"], state["peak_bytes"]

    def _sample(self) -> None:
        process = psutil.Process()
        while not self._stop.wait(_SAMPLE_EVERY):
            if self._since is not None:
                self.peak_bytes = max(self.peak_bytes, process.memory_info().rss)


@contextmanager
def cpu_threads(count: int | None) -> Generator[None]:
    """Let torch compute with this many CPU threads within the block; None leaves its own number."""
    if count is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
