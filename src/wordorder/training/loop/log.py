"""Log a training: to its state, to the learning curve, to experiment trackers and to the screen."""

from collections.abc import Sequence
from typing import Any

from wordorder.training.loop.training import Training
from wordorder.training.runs.folder import append_curve, curve_row, rewrite_curve


class Log:
    """Writes what a training measures."""

    def __init__(self, training: Training, *, trackers: Sequence[Any]) -> None:
        self._training, self._trackers = training, trackers
        self._row_step = -1

    def add(self, values: dict[str, float]) -> None:
        """Add an entry to the log, with the epoch, the step, and the seconds and tokens of training so far."""
        training = self._training
        if "loss" in values:
            (tokens,) = training.parts.processes.total(training.meter.tokens)
            values |= {"train_seconds": round(training.meter.seconds, 3), "tokens": tokens}
        values["epoch"] = training.state.epoch
        training.state.log_history.append({**values, "step": training.state.global_step})
        scalars = {_tag(name): value for name, value in values.items() if name != "epoch"}
        for tracker in self._trackers:
            tracker.log(scalars, step=training.state.global_step)

    def loss(self, grad_norm: float | None, learning_rate: float) -> None:
        """Add the mean loss since it was logged last; called by all processes together."""
        training, state = self._training, self._training.state
        total = training.parts.accelerator.gather(training.loss_sum).mean().item()
        training.loss_sum -= training.loss_sum
        values = {"loss": total / (state.global_step - training.logged_step)}
        if grad_norm is not None:
            values["grad_norm"] = grad_norm
        training.logged_step = state.global_step
        self.add({**values, "learning_rate": learning_rate})

    def write_curve(self, *, since: int) -> None:
        """Write the row of this step to the learning curve of the run folder."""
        training, state = self._training, self._training.state
        found: dict[str, Any] = {}
        for entry in state.log_history[since:]:
            found |= curve_row(entry)
        if not found or not training.parts.processes.is_main:
            return
        if state.global_step == self._row_step:
            rewrite_curve(training.folder, state.log_history)  # the end of an epoch adds to its last step's row
        else:
            append_curve(training.folder, {"step": state.global_step, **found})
        self._row_step = state.global_step


def _tag(name: str) -> str:
    """Return the name of a value in trackers: "eval_loss" -> "validation/loss", "loss" -> "train/loss"."""
    return f"validation/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"
