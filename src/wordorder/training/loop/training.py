"""The state of a training: what its loop changes, and what the parts of the loop share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerState

from wordorder.training.loop.batch_digest import FedBatches
from wordorder.training.loop.carried_memory import Memories
from wordorder.training.loop.meter import Meter
from wordorder.training.loop.progress import Progress
from wordorder.training.loop.setup import Parts
from wordorder.training.loop.watch import LossWatch


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
        self.watch = LossWatch(self.folder, self.parts.processes)

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
