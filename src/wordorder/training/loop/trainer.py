"""The Trainer of this package: batches in a known order, exact evaluation, a stop at a loss that is not finite."""

# transformers.Trainer is untyped for the most part, and so is whatever super() gives of it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import inspect
import math
import signal
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PrinterCallback

from wordorder.errors import RunFailed, Stopped
from wordorder.tasks.scores import Tally
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.loop.batch_digest import FED, READ, FedBatches, WithRows
from wordorder.training.loop.interruption import Interruption
from wordorder.training.loop.meter import Meter
from wordorder.training.loop.progress import Progress
from wordorder.training.loop.scoring_trainer import ScoringTrainer
from wordorder.training.loop.share import training_loader
from wordorder.training.run import curve


class WordOrderTrainer(ScoringTrainer):
    """A Trainer for `wordorder.data.PreparedData`.

    What differs from transformers.Trainer:

    - batches come in the order of the data's sampler, a pure function of seed and epoch, and several processes read
      together what one would, see `ShareOfBatches`;
    - evaluation sums over all tokens and divides once, see `ScoringTrainer`;
    - checkpoints are whole or absent, hold no pickle and restore everything, see `ResumableTrainer`;
    - a loss that is not finite raises RunFailed; signals save and raise Stopped; of several processes all do, after the
      same step.

    Args:
        model: with `.forward(..., labels=...)` giving `.loss` and `.logits`.
        args: transformers.TrainingArguments, see `wordorder.training.recipe.arguments.build_arguments`.
        train_dataset: examples by (epoch, index).
        eval_dataset: examples by index, for the choice of the best model.
        sampler: gives the (epoch, index) pairs of an epoch; has `set_epoch`.
        collate: makes a batch from examples.
        tokenizer: saved beside every model.
        make_tally: gives an empty tally of the task's scores on a device, for a data set.
        headline: the score that is shown beside the loss; accuracy stands in where it was not measured.
        before_smoothing: changes a batch before its labels are smoothed, see `Task.before_smoothing`.
        decay_all: let weight decay act on biases and norms too; transformers leaves them out.
        keep_steps: save checkpoints after these steps, and never remove them.
        segments: see `MemoryTrainer`; 1 where a row of a step is read at once.
        meter: counts seconds, tokens, memory.
        progress: is told about every step.
        interruption: asked after every step whether to stop.
    """

    def __init__(
        self,
        model: Any,
        args: Any,
        *,
        train_dataset: Any,
        eval_dataset: Any,
        sampler: Any,
        collate: Any,
        tokenizer: Any,
        make_tally: Callable[[torch.device, Any], Tally],
        headline: str,
        before_smoothing: Callable[[dict[str, Any]], dict[str, Any]],
        decay_all: bool = False,
        keep_steps: Sequence[int] = (),
        segments: int = 1,
        meter: Meter,
        progress: Progress,
        interruption: Interruption,
        callbacks: list[Any] | None = None,
    ) -> None:
        super().__init__(
            model,
            args,
            collate=collate,
            make_tally=make_tally,
            headline=headline,
            progress=progress,
            meter=meter,
            keep_steps=keep_steps,
            fed=FedBatches(rows=args.gradient_accumulation_steps // segments),
            data_collator=WithRows(collate),
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
            callbacks=callbacks,
        )
        self.remove_callback(PrinterCallback)  # it prints to stdout, which belongs to results
        # transformers looks for **kwargs; a model that names the argument is told too how many items a step has.
        self.model_accepts_loss_kwargs |= "num_items_in_batch" in inspect.signature(model.forward).parameters
        if getattr(model.config, "problem_type", None) == "regression":
            # Its loss is a mean whatever it is told; accumulated batches would be added up as if it were not.
            self.model_accepts_loss_kwargs = False
        self._mean_of_batch = not self.model_accepts_loss_kwargs
        self._rows = 0
        """Number of examples of the current batch, without those of a `Spare`."""
        self._failure: str | None = None
        """Fault of this process that the other processes do not know yet."""
        self._before_smoothing = before_smoothing
        self._sampler, self._decay_all = sampler, decay_all
        self._interruption = interruption
        self._seen_step = -1
        self._row_step = -1
        self._shown = False
        # (loss, its step) still on its way from the device; see _watch.
        self._pending: tuple[Tensor, int, Any] | None = None
        self._step_loss = math.nan
        self._micro_losses: list[float] = []

    def _run_epoch(self, *args: Any, **kwargs: Any) -> Any:
        # accelerate forwards set_epoch only through the wrappings that it knows.
        self._sampler.set_epoch(kwargs["epoch"])
        if not self._shown:
            if self.state.logging_steps > self.state.max_steps:
                self.state.logging_steps = max(1, self.state.max_steps // 10)  # a short run has a curve too
            self._progress.start(self.state.global_step, self.state.max_steps)
            self._shown = True
        self._meter.resume()
        return super()._run_epoch(*args, **kwargs)

    def get_train_dataloader(self) -> Any:
        """Return the training batches of this process; see transformers.Trainer."""
        if self._processes.count == 1:
            return super().get_train_dataloader()
        return training_loader(
            self.train_dataset,
            self._sampler,
            self.args,
            collate=self.data_collator,
            batch_size=self.args.train_batch_size,
            device=self.accelerator.device,
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return self._sampler

    def get_decay_parameter_names(self, model: Any) -> list[str]:
        """Return the names of the parameters that weight decay acts on; see transformers.Trainer."""
        if self._decay_all:
            return [name for name, _ in model.named_parameters()]
        return super().get_decay_parameter_names(model)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Run one forward and backward pass; see transformers.Trainer."""
        # before anything changes the batch: here it is what the model is given
        rows = inputs.pop(FED)
        self._fed.take(self.state.global_step + 1, rows)
        self._rows = sum(len(row) > 0 for row in rows[READ[0]])
        self._meter.count(inputs)
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._watch(loss)
        return loss

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Compute the loss of a batch, smoothed where the arguments say so; see transformers.Trainer."""
        if self.label_smoother is not None:
            inputs = self._before_smoothing(inputs)
        found = super().compute_loss(model, inputs, *args, **kwargs)
        if not self._mean_of_batch or self._processes.count == 1 or not model.training:
            return found
        # The mean over processes is to be that over the examples of all of them, of which this one may have fewer.
        (rows,) = self._processes.total(self._rows)
        weight = self._rows * self._processes.count / rows
        return (found[0] * weight, *found[1:]) if isinstance(found, tuple) else found * weight

    def _watch(self, loss: Tensor) -> None:
        """Stop at a loss that is not finite, without making an accelerator wait.

        On the CPU the number is at hand. Elsewhere it is copied in the background and looked at one step later, and
        before anything is saved.
        """
        step = self.state.global_step + 1
        if loss.device.type == "cpu":
            self._look_at(float(loss), step)
            return
        self.settle()
        arrived = torch.Event(device=loss.device)
        # Only into pinned memory does a copy not wait for the device.
        pinned = torch.empty((), dtype=loss.dtype, pin_memory=loss.device.type == "cuda")
        copy = pinned.copy_(loss, non_blocking=True)
        arrived.record()
        self._pending = (copy, step, arrived)

    def settle(self) -> None:
        """Check the loss that is still on its way from the device, before anything relies on it."""
        if self._pending is not None:
            copy, step, arrived = self._pending
            self._pending = None
            arrived.synchronize()
            self._look_at(float(copy), step)

    def _look_at(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            fault = f"the loss became {loss} at step {step}; {last_good(self._folder)}; try a lower learning rate"
            if self._processes.count == 1:
                raise RunFailed(fault)
            self._failure = self._failure or fault  # the others wait for this process's gradients: not before `_agree`
        self._micro_losses.append(loss)

    def _agree(self) -> signal.Signals | None:
        """Return the signal to stop for, if any process received one; called by all processes together.

        Raises:
            RunFailed: something went wrong in one of them.
        """
        requested = self._interruption.requested
        if self._processes.count == 1:
            return requested
        number, failed = self._processes.greatest(requested or 0, self._failure is not None)
        if failed:
            self._processes.raise_first(self._failure)
        return signal.Signals(number) if number else None

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Return 0: transformers' estimate walks over all parameters at every step; `wordorder cost` counts exactly."""
        return 0

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        control = self.control
        step = self.state.global_step
        control.should_save |= step in self._keep_steps and self._saved_step != step
        if self._micro_losses:
            self._step_loss = math.fsum(self._micro_losses)
            self._micro_losses.clear()
        self._progress.update(step, self._step_loss, self._processes.count * self._meter.tokens_for_display())
        advice = self._meter.advice()
        if advice is not None:
            self._progress.advise(advice)
        if self._processes.count > 1 and (control.should_log or control.should_evaluate or control.should_save):
            self.settle()  # before anything relies on it, and here all processes can be told
        stop = self._agree()
        # transformers calls this once more at the end of an epoch, where what is due each epoch is done: the stop comes
        # after it, or the resumed run would miss it.
        if stop and float(self.state.epoch or 0).is_integer() and self._seen_step != step:
            stop = None
        self._seen_step = step
        if not (control.should_log or control.should_evaluate or control.should_save or stop):
            return
        self._meter.pause()
        logged = len(self.state.log_history)
        super()._maybe_log_save_evaluate(*args, **kwargs)
        found: dict[str, Any] = {}
        for entry in self.state.log_history[logged:]:
            found |= curve.row(entry)
        if found and self.is_world_process_zero():
            if step == self._row_step:
                curve.rewrite(self._folder, self.state.log_history)  # the end of an epoch adds to its last step's row
            else:
                curve.append(self._folder, {"step": step, **found})
            self._row_step = step
        if stop is not None:
            if self._saved_step != step:
                self._save_checkpoint(self.model, None)
            raise Stopped(f"stopped by {stop.name} after step {step}; {last_good(self._folder)}; --resume goes on")
        self._meter.resume()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log values with the seconds and tokens of training so far; see transformers.Trainer.log."""
        if "loss" in logs:
            (tokens,) = self._processes.total(self._meter.tokens)
            logs |= {"train_seconds": round(self._meter.seconds, 3), "tokens": tokens}
        super().log(logs, start_time)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Compute exact scores after checking that all losses so far are finite; see `ScoringTrainer.evaluate`."""
        self.settle()
        if self._processes.count > 1:
            self._agree()
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
