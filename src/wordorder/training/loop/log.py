"""Log a training: to its state, to the learning curve, to experiment trackers and to the screen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl
from transformers.integrations import integration_utils

from wordorder.training.loop.training import Training
from wordorder.training.runs.folder import append_curve, curve_row, rewrite_curve


class Log:
    """Writes what a training measures.

    Callbacks are told of the beginning, of every entry of the log, and of the end, as transformers' Trainer does;
    besides the given ones, those of the trackers that the recipe names.
    """

    def __init__(self, training: Training, *, tokenizer: Any, callbacks: Sequence[TrainerCallback] = ()) -> None:
        self._training, self._tokenizer = training, tokenizer
        library: Any = integration_utils  # its functions have no types
        found = library.get_reporting_integration_callbacks(training.parts.args.report_to)
        self._callbacks: list[TrainerCallback] = [*(make() for make in found), *callbacks]
        self._row_step = -1
        self.tell("on_init_end")

    def tell(self, event: str, **what: Any) -> None:
        """Call a method of all callbacks, such as "on_train_begin"."""
        parts = self._training.parts
        for callback in self._callbacks:
            getattr(callback, event)(
                parts.args,
                self._training.state,
                TrainerControl(),
                model=parts.model,
                processing_class=self._tokenizer,
                optimizer=parts.optimizer,
                lr_scheduler=parts.schedule,
                **what,
            )

    def add(self, values: dict[str, float]) -> None:
        """Add an entry to the log, with the epoch, the step, and the seconds and tokens of training so far."""
        training = self._training
        if "loss" in values:
            (tokens,) = training.parts.processes.total(training.meter.tokens)
            values |= {"train_seconds": round(training.meter.seconds, 3), "tokens": tokens}
        values["epoch"] = training.state.epoch
        training.state.log_history.append({**values, "step": training.state.global_step})
        self.tell("on_log", logs=values)

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


class TensorBoardLogs(TrainerCallback):
    """Callback that writes train/..., validation/... against the step.

    Not transformers' own callback: that one takes its folder from an environment variable. The viewer drops what a
    killed run wrote from `first_step` on.
    """

    def __init__(self, folder: Path, *, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=first_step)  # pyright: ignore[reportUnknownVariableType]

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the values of an entry of the log."""
        for name, value in kwargs.get("logs", {}).items():
            if isinstance(value, int | float) and name != "epoch":
                group, _, rest = name.partition("_")
                tag = f"validation/{rest}" if group == "eval" else f"train/{name}"
                self._writer.add_scalar(tag, value, state.global_step)

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()
