"""The training loop: epochs, steps, micro-batches, and what is due after each step."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import skip_first_batches  # pyright: ignore[reportUnknownVariableType]  # it has types in part
from accelerate.utils import set_seed
from torch import Tensor
from transformers import TrainerControl, TrainingArguments
from transformers.trainer_callback import DefaultFlowCallback
from transformers.trainer_pt_utils import LabelSmoother

from wordorder.errors import BadInput, Stopped
from wordorder.models.pretrained import with_memory_loss
from wordorder.tasks.scores import IGNORED
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.loop.batches import FED, READ
from wordorder.training.loop.evaluation import Evaluation
from wordorder.training.loop.interruption import Interruption
from wordorder.training.loop.saving import Saving
from wordorder.training.loop.training import Training, follows_a_metric, prepare_training
from wordorder.training.runs.folder import append_curve, curve_row, rewrite_curve


class Log:
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


_FLOW: Any = DefaultFlowCallback()
"""Says at which steps to log, score and save, by `logging_steps` and the like, as in transformers' Trainer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    batches: int
    """Micro-batches of an epoch."""
    steps_per_epoch: int
    steps: int
    epochs: int
    """The last one perhaps in part."""


def length_of(args: TrainingArguments, batches: int) -> Length:
    """Return the length of a training, given the micro-batches of an epoch: `max_steps` decides if it is set."""
    if not batches:
        raise BadInput(
            "training.dataloader_drop_last: an epoch has fewer examples than one batch, so nothing is left; set it to "
            "false, or lower training.per_device_train_batch_size"
        )
    per_epoch = max(math.ceil(batches / args.gradient_accumulation_steps), 1)
    if args.max_steps > 0:
        steps, epochs = args.max_steps, math.ceil(args.max_steps / per_epoch)
    else:
        steps, epochs = math.ceil(args.num_train_epochs * per_epoch), math.ceil(args.num_train_epochs)
    return Length(batches=batches, steps_per_epoch=per_epoch, steps=steps, epochs=epochs)


class StepLoss:
    """Losses that add up to the mean over an optimizer step, whatever its micro-batches and processes.

    A model that takes `num_items_in_batch` divides its sum by the predicted tokens of the whole step. The mean that
    another one returns is divided by the number of micro-batches.
    """

    def __init__(self, training: Training, before_smoothing: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.training, self._parts, self._before_smoothing = training, training.parts, before_smoothing
        model, args = self._parts.model, self._parts.args
        # Such a model predicts each token from those before it, so that the first one is never predicted.
        self._shifts = type(model).__name__.endswith(("ForCausalLM", "LMHeadModel"))
        takes = inspect.signature(model.forward).parameters
        # transformers' other heads take any keyword, and most of them drop this one
        hands_on = self._shifts or getattr(model, "accepts_loss_kwargs", False)
        named = "num_items_in_batch" in takes or (
            hands_on and any(one.kind == one.VAR_KEYWORD for one in takes.values())
        )
        # The loss of numbers is a mean whatever it is told.
        self._divides = named and getattr(model.config, "problem_type", None) != "regression"
        epsilon = args.label_smoothing_factor
        self._smoother: Callable[..., Tensor] | None = LabelSmoother(epsilon=epsilon) if epsilon else None

    def items(self, batches: Sequence[Mapping[str, Any]]) -> Tensor | None:
        """Return the number of predicted tokens in the micro-batches of a step, of all processes together."""
        if not self._divides or not batches or not {"labels", "shift_labels"} & batches[0].keys():
            return None
        counted = sum(self._labels(batch).ne(IGNORED).sum() for batch in batches)
        assert isinstance(counted, Tensor)
        counted = counted.to(self._parts.device)
        if self._parts.args.average_tokens_across_devices and self._parts.processes.count > 1:
            counted = self._parts.accelerator.gather(counted).sum()
        # a floating-point number, as transformers divides by; where a step of answers has none, its loss is 0
        return counted.clamp(min=1) / 1

    def _labels(self, batch: Mapping[str, Any]) -> Tensor:
        if "shift_labels" in batch:
            return batch["shift_labels"]
        return batch["labels"][..., 1:] if self._shifts else batch["labels"]

    def __call__(
        self, model: Any, batch: dict[str, Any], *, items: Tensor | None, micro_batches: int, rows: int
    ) -> tuple[Tensor, Any]:
        """Return the loss to add to those of the step's other micro-batches, and the model's output.

        `rows` are the examples of this batch from which something is learned, `items` those of the step, see `items`.
        """
        labels = None
        if self._smoother is not None:
            batch = self._before_smoothing(batch)
            labels = batch.pop("labels", None)
        scaled, processes = self._divides and items is not None, self._parts.processes
        output = model(**batch, **({"num_items_in_batch": items} if scaled else {}))
        if labels is None or self._smoother is None:
            loss = output["loss"]
        else:
            loss = self._smoother(output, labels, num_items_in_batch=items if scaled else None)
            loss = with_memory_loss(loss, output.get("memory_loss"), labels, items if scaled else None)
        if scaled and self._parts.args.average_tokens_across_devices:
            loss = loss * processes.count  # DDP takes the mean over processes
        if not self._divides and processes.count > 1:
            # The mean over processes is to be that over the examples of all of them, of which this one may have fewer.
            (all_rows,) = processes.total(rows)
            loss = loss * (rows * processes.count / all_rows)
        return (loss if scaled else loss / micro_batches), output


@dataclass(kw_only=True)
class Loop:
    """Trains: forward, backward, optimizer step, and what is due after a step."""

    training: Training
    loader: Any
    """Micro-batches of this process, each with its rows under `FED`."""
    order: Any
    """Order of the examples; told the epoch."""
    loss: StepLoss
    evaluation: Evaluation
    validation: Any
    """The data set whose scores choose the best checkpoint."""
    saving: Saving
    log: Log
    interruption: Interruption
    """Asked after every step whether to stop."""
    decay_all: bool
    """Weight decay acts on biases and norms too."""
    encoding_rate: float = 1.0
    """Learning rate of the encodings' parameters, as a multiple of the others'."""

    def __post_init__(self) -> None:
        self._grad_norm: Tensor | None = None
        self._learning_rate = 0.0
        self._control = TrainerControl()

    def train(self, start: Path | None) -> None:
        """Train to the last step, from a whole checkpoint or anew, and end with the best weights if the recipe says so.

        Raises:
            Stopped: a signal asked for it; the checkpoint of the last step is written.
            RunFailed: a loss or the weights are not finite, or files cannot be written.
        """
        training, parts, args = self.training, self.training.parts, self.training.parts.args
        length = length_of(args, len(self.loader))
        training.active = True
        if start is None and parts.processes.count > 1:
            set_seed(args.seed, device_specific=True)  # or dropout would be the same in all processes
        self.saving.begin(start)
        state = training.state
        if start is None:
            state.train_batch_size = args.per_device_train_batch_size
            state.compute_steps(args, length.steps)  # pyright: ignore[reportUnknownMemberType]
        state.max_steps, state.num_train_epochs = length.steps, length.epochs
        prepare_training(parts, steps=length.steps, decay_all=self.decay_all, encoding_rate=self.encoding_rate)
        if start is not None:
            self.saving.restore_optimizer(start)
        if state.logging_steps > state.max_steps:
            state.logging_steps = max(1, state.max_steps // 10)  # a short run has a curve too
        try:
            training.progress.start(state.global_step, state.max_steps)
            parts.wrapped.zero_grad()
            if args.eval_on_start:
                self._evaluate(at_start=True)
            done, skip = divmod(state.global_step, length.steps_per_epoch)
            for epoch in range(done, length.epochs):
                self._run_epoch(epoch, length, skip=skip, start=start)
                skip, start = 0, None
                if self._control.should_training_stop:
                    break
            self.saving.load_best()
        finally:
            training.active = False
            training.meter.close()

    def _run_epoch(self, epoch: int, length: Length, *, skip: int, start: Path | None) -> None:
        training, state, args = self.training, self.training.state, self.training.parts.args
        size = args.gradient_accumulation_steps
        if start is not None and skip == 0:
            self.saving.restore_random(start)
        if training.memories is not None:
            training.memories.begin_epoch(within=skip > 0)
        self.order.set_epoch(epoch)
        training.meter.resume()
        loader = cast(Any, skip_first_batches(self.loader, skip * size)) if skip else self.loader  # they are not read
        batches: Iterator[dict[str, Any]] = iter(loader)
        for step in range(skip, length.steps_per_epoch):
            micro_batches = list(islice(batches, min(size, length.batches - step * size)))
            items = self.loss.items(micro_batches)
            if start is not None and step == skip > 0:
                self.saving.restore_random(start)  # after the batches that were skipped
            self._control.should_log = self._control.should_evaluate = self._control.should_save = False
            self.step(micro_batches, items)
            state.global_step += 1
            read = min((step + 1) * size, length.batches)
            state.epoch = epoch + read / length.batches
            _FLOW.on_step_end(args, state, self._control)
            # What is due each epoch comes after its last step, and a stop after that, or the resumed run would miss it.
            self._after_step(may_stop=read < length.batches)
            if self._control.should_training_stop:
                break
        _FLOW.on_epoch_end(args, state, self._control)
        self._after_step(may_stop=True)

    def step(self, micro_batches: list[dict[str, Any]], items: Tensor | None) -> None:
        parts, args = self.training.parts, self.training.parts.args
        for number, batch in enumerate(micro_batches):
            last = number == len(micro_batches) - 1
            # before the last, gradients are added up and not yet exchanged between processes
            with nullcontext() if last else parts.accelerator.no_sync(model=parts.wrapped):
                loss = self.micro_step(batch, items, number=number, micro_batches=len(micro_batches))
            self.training.loss_sum += loss
        self._grad_norm = self.clip()
        parts.optimizer.step()
        self._learning_rate = parts.learning_rate
        if not parts.accelerator.optimizer_step_was_skipped and not follows_a_metric(args):
            parts.schedule.step()
        parts.wrapped.zero_grad()

    def clip(self) -> Tensor | None:
        parts = self.training.parts
        most = parts.args.max_grad_norm if parts.args.max_grad_norm > 0 else math.inf
        return parts.accelerator.clip_grad_norm_(parts.wrapped.parameters(), most)

    def micro_step(self, batch: dict[str, Any], items: Tensor | None, *, number: int, micro_batches: int) -> Tensor:
        training, parts, args = self.training, self.training.parts, self.training.parts.args
        step = training.state.global_step + 1
        rows = batch.pop(FED)
        training.digest.take(step, rows)  # before anything changes the batch: here it is what the model is given
        training.meter.count(batch)
        parts.wrapped.train()
        inputs = {name: value.to(parts.device) if isinstance(value, Tensor) else value for name, value in batch.items()}
        memory = None if training.memories is None else training.memories.of(number)
        if memory is not None:
            inputs = memory.put_in(inputs)
        learned = sum(len(row) > 0 for row in rows[READ[0]])  # none of a `Spare`
        loss, output = self.loss(parts.wrapped, inputs, items=items, micro_batches=micro_batches, rows=learned)
        if memory is not None:
            memory.take(output)
        every = args.torch_empty_cache_steps
        if every and parts.device.type != "cpu" and training.state.global_step % every == 0:
            torch.accelerator.empty_cache()
        parts.accelerator.backward(loss)
        found = loss.detach()
        training.watch.see(found, step)
        return found

    def _after_step(self, *, may_stop: bool) -> None:
        training, state, control = self.training, self.training.state, self._control
        processes, args, step = training.parts.processes, training.parts.args, state.global_step
        control.should_save |= step in self.saving.keep_steps and training.saved_step != step
        tokens = processes.count * training.meter.tokens_for_display()
        training.progress.update(step, training.watch.step_loss(), tokens)
        due = control.should_log or control.should_evaluate or control.should_save
        if processes.count > 1 and due:
            training.watch.settle()  # before anything relies on it, and here all processes can be told
        requested = training.watch.agree(self.interruption.requested)
        stop = requested if may_stop else None
        if not (due or stop):
            return
        training.meter.pause()
        logged = len(state.log_history)
        if control.should_log and step > training.logged_step:
            self.log.loss(None if self._grad_norm is None else self._grad_norm.item(), self._learning_rate)
        control.should_log = False
        if control.should_evaluate:
            best = self._is_best(self._evaluate())
            control.should_save |= best and args.load_best_model_at_end  # also between two saves
            if args.save_strategy == "best":
                control.should_save = best or step in self.saving.keep_steps
            control.should_evaluate = False
        if control.should_save:
            self.saving.save()
            control.should_save = False
        self.log.write_curve(since=logged)
        if stop is not None:
            if training.saved_step != step:
                self.saving.save()
            raise Stopped(f"stopped by {stop.name} after step {step}; {last_good(training.folder)}; --resume goes on")
        training.meter.resume()

    def _evaluate(self, *, at_start: bool = False) -> dict[str, float]:
        training, state = self.training, self.training.state
        scores = self.evaluation.scores(self.validation)
        logged = {f"eval_{name}": value for name, value in scores.items()}
        self.log.add(dict(logged))
        progress = f"step {state.global_step}/{state.max_steps}"
        training.progress.say(f"{progress}  validation {self.evaluation.in_short(scores)}")
        if follows_a_metric(training.parts.args) and not at_start:
            training.parts.schedule.step(logged[self._metric])
        return logged

    @property
    def _metric(self) -> str:
        return f"eval_{str(self.training.parts.args.metric_for_best_model or 'loss').removeprefix('eval_')}"

    def _is_best(self, scores: dict[str, float]) -> bool:
        args, state = self.training.parts.args, self.training.state
        if args.metric_for_best_model is None:
            return False
        value, greater = scores[self._metric], bool(args.greater_is_better)
        if state.best_metric is not None and (value <= state.best_metric if greater else value >= state.best_metric):
            return False
        state.best_metric = value
        if args.save_strategy != "no":
            state.best_global_step = state.global_step
        return True
