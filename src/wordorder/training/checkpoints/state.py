"""The state of a training: all that a checkpoint holds beside weights, optimizers, random generators and memories."""

from typing import Annotated, Any

from annotated_types import Ge
from pydantic import BaseModel, ConfigDict, Field, field_validator

STATE = "state.json"
"""File of a checkpoint with a `TrainState`."""

Number = Annotated[int, Ge(0)]


class ProcessState(BaseModel):
    """Counts of a process."""

    model_config = ConfigDict(strict=True, extra="forbid")

    loss_sum: float = 0.0
    """Sum of the losses of the steps since the loss was logged last."""
    logged_step: Number = 0
    """Step at which it was."""
    meter: dict[str, int | float] = Field(default_factory=dict[str, int | float])
    """Seconds, tokens and bytes, see `Meter.state`."""
    batches: dict[str, Any] | None = None
    """The digest of the batches, see `FedBatches.state`; None: it is unknown."""


class TrainState(BaseModel):
    """The state of a training after a step."""

    model_config = ConfigDict(strict=True, extra="forbid")

    step: Number = 0
    """Optimizer steps done."""
    steps: Number = 0
    """Optimizer steps of the run."""
    epoch: Annotated[float, Ge(0)] = 0.0
    """Passes over the training data, the last one in part."""
    scheduled: Number = 0
    """Optimizer steps that count for the learning rate: not those that fp16 skipped."""
    batch_size: Number = 0
    """Examples that a step reads, in all processes together."""
    score_due: bool = False
    """True if a signal broke off the evaluation of this step; the run that goes on begins with it."""
    best_step: Number | None = None
    """Step of the best score; None: there is none yet, or its checkpoint was lost."""
    best_score: float | None = None
    log: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    """The log of the run, an entry with its step each."""
    processes: list[ProcessState] = Field(default_factory=list[ProcessState])
    """Counts of each process at a checkpoint."""

    @field_validator("log")
    @classmethod
    def _have_steps(cls, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not all(type(entry.get("step")) is int for entry in entries):
            raise ValueError("has an entry without step")
        return entries
