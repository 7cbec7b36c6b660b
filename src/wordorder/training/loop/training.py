"""The state of a training: what its loop changes, and what the parts of the loop share."""

import math
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerState

from wordorder.errors import RunFailed
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.loop.batch_digest import FedBatches
from wordorder.training.loop.carried_memory import Memories
from wordorder.training.loop.meter import Meter
from wordorder.training.loop.processes import Processes
from wordorder.training.loop.progress import Progress
from wordorder.training.loop.setup import Parts


class LossWatch:
    """Looks at the loss of every micro-batch, without making an accelerator wait.

    On the CPU the number is at hand. Elsewhere it is copied in the background and looked at one step later, and before
    anything is saved.

    Args:
        folder: of the run, for the words of an error.
        processes: of the run.
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
        """Look at the loss of a micro-batch, now or soon.

        Args:
            loss: a scalar.
            step: the optimizer step that it belongs to, from 1.

        Raises:
            RunFailed: it is not finite, and this is the only process.
        """
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
        """Look at the loss that is still on its way from the device, before anything relies on it."""
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
        """Return the signal to stop for, if any process received one; called by all processes together.

        Args:
            requested: the signal of this process.

        Raises:
            RunFailed: something went wrong in one of them.
        """
        if self._processes.count == 1:
            return requested
        number, failed = self._processes.greatest(requested or 0, self._failure is not None)
        if failed:
            self._processes.raise_first(self._failure)
        return signal.Signals(number) if number else None


@dataclass(slots=True, kw_only=True)
class Training:
    """All that the loop changes; a checkpoint holds it, and restoring a checkpoint sets it."""

    parts: Parts
    """Model, optimizer, learning rates, processes."""
    folder: Path
    """The run folder."""
    meter: Meter
    """Counts seconds, tokens, memory."""
    progress: Progress
    """Shows the steps."""
    digest: FedBatches
    """Digests of the batches so far."""
    memories: Memories | None = None
    """Memories that go from batch to batch, for texts in lanes."""
    state: Any = field(default_factory=lambda: TrainerState())
    """Steps done, the log and the best score: a transformers.TrainerState, whose fields have no types."""
    loss_sum: Tensor = field(init=False)
    """Sum of the losses since they were logged last, on the device."""
    logged_step: int = 0
    """Step at which they were."""
    saved_step: int = -1
    """Step of the checkpoint that was written last."""
    active: bool = False
    """True from the first step to the last."""
    watch: LossWatch = field(init=False)
    """Looks for losses that are not finite."""

    def __post_init__(self) -> None:
        self.loss_sum = torch.tensor(0.0, device=self.parts.device)
        self.tell_process()
        self.watch = LossWatch(self.folder, self.parts.processes)

    def tell_process(self) -> None:
        """Let the state know which process this is; trackers write in the first one alone."""
        self.state.is_world_process_zero = self.parts.processes.is_main
        self.state.is_local_process_zero = self.parts.args.local_process_index == 0

    @property
    def rows_of_a_step(self) -> int:
        """Number of examples that an optimizer step reads, in all processes together."""
        args = self.parts.args
        return args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size

    @property
    def kept_step(self) -> int:
        """Step of the weights that the model has after training: the best one, or the last."""
        best = self.state.best_global_step if self.parts.args.load_best_model_at_end else None
        return best or self.state.global_step

    def counted(self) -> dict[str, float]:
        """Return the counts of all processes together: seconds, tokens, and the largest peak_bytes."""
        own, processes = self.meter.state(), self.parts.processes
        (tokens,) = processes.total(int(own["tokens"]))
        (peak,) = processes.greatest(int(own["peak_bytes"]))
        return {"seconds": own["seconds"], "tokens": tokens, "peak_bytes": peak}
