"""All that the training loop changes; a checkpoint holds it, and restoring a checkpoint sets it."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from wordorder.training.checkpoints.state import TrainState
from wordorder.training.loop.accelerate import Parts
from wordorder.training.loop.batches import FedBatches
from wordorder.training.loop.carried_memory import Memories
from wordorder.training.loop.meter import Meter
from wordorder.training.loop.progress import Progress
from wordorder.training.loop.step_loss import LossWatch


@dataclass(slots=True, kw_only=True)
class Training:
    """All that the loop changes; a checkpoint holds it, and restoring a checkpoint sets it."""

    parts: Parts
    folder: Path
    meter: Meter
    progress: Progress
    digest: FedBatches
    memories: Memories | None = None
    """Memories that go from batch to batch, for texts in lanes."""
    state: TrainState = field(default_factory=TrainState)
    """Steps done, the log and the best score."""
    loss_sum: Tensor = field(init=False)
    """Sum of the losses since they were logged last, on the device."""
    logged_step: int = 0
    """Step at which they were."""
    saved_step: int = -1
    """Step of the checkpoint that was written last."""
    active: bool = False
    """True from the first step to the last."""
    watch: LossWatch = field(init=False)

    def __post_init__(self) -> None:
        self.loss_sum = torch.tensor(0.0, device=self.parts.device)
        self.watch = LossWatch(self.folder, self.parts.processes)
