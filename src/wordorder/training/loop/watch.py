"""Look at the loss of every micro-batch, without making an accelerator wait."""

import math
import signal
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wordorder.errors import RunFailed
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.loop.processes import Processes


class LossWatch:
    """Ends a run whose loss is not finite.

    On the CPU the number is at hand. Elsewhere it is copied in the background and looked at one step later, and before
    anything is saved.
    """

    def __init__(self, folder: Path, processes: Processes) -> None:
        self._folder, self._processes = folder, processes
        self._on_its_way: tuple[Tensor, int, Any] | None = None
        self._failure: str | None = None
        """Fault of this process that the other processes do not know yet."""
        self._micro_losses: list[float] = []
        self._step_loss = math.nan

    def step_loss(self) -> float:
        """Return the loss of the last step that was looked at, the sum of its micro-batches' shares."""
        if self._micro_losses:
            self._step_loss = math.fsum(self._micro_losses)
            self._micro_losses.clear()
        return self._step_loss

    def see(self, loss: Tensor, step: int) -> None:
        if loss.device.type == "cpu":
            self._look_at(float(loss), step)
            return
        self.settle()
        arrived = torch.Event(device=loss.device)
        # Only into pinned memory does a copy not wait for the device.
        pinned = torch.empty((), dtype=loss.dtype, pin_memory=loss.device.type == "cuda")
        copy = pinned.copy_(loss, non_blocking=True)
        arrived.record()
        self._on_its_way = (copy, step, arrived)

    def settle(self) -> None:
        """Look at the loss that is still on its way."""
        if self._on_its_way is not None:
            copy, step, arrived = self._on_its_way
            self._on_its_way = None
            arrived.synchronize()
            self._look_at(float(copy), step)

    def _look_at(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            fault = f"the loss became {loss} at step {step}; {last_good(self._folder)}; try a lower learning rate"
            if self._processes.count == 1:
                raise RunFailed(fault)
            self._failure = self._failure or fault  # the others wait for this process's gradients: not before `agree`
        self._micro_losses.append(loss)

    def agree(self, requested: signal.Signals | None) -> signal.Signals | None:
        """Return the signal to stop for, if any process received one; called by all processes together."""
        if self._processes.count == 1:
            return requested
        number, failed = self._processes.greatest(requested or 0, self._failure is not None)
        if failed:
            self._processes.raise_first(self._failure)
        return signal.Signals(number) if number else None
