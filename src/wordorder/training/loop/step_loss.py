"""Losses of micro-batches, which add up to the mean over an optimizer step; and a watch on them."""

import inspect
import math
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.trainer_pt_utils import LabelSmoother

from wordorder.errors import RunFailed
from wordorder.models.pretrained import with_memory_loss
from wordorder.tasks.scores import IGNORED
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.loop.accelerate import Parts, Processes


class StepLoss:
    """The loss of a micro-batch, as its share of the mean of a step.

    A model that takes `num_items_in_batch` divides its sum by the predicted tokens of the whole step. The mean over
    examples that another one returns is weighted by the micro-batch's share of the step's examples.
    """

    def __init__(self, parts: Parts, before_smoothing: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._parts, self._before_smoothing = parts, before_smoothing
        model = parts.model
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
        epsilon = parts.settings.label_smoothing
        self._smoother: Callable[..., Tensor] | None = LabelSmoother(epsilon=epsilon) if epsilon else None

    def items(self, batches: Sequence[Mapping[str, Any]]) -> Tensor | None:
        """Return the number of predicted tokens in the micro-batches of a step, of all processes together."""
        if not self._divides or not batches or not {"labels", "shift_labels"} & batches[0].keys():
            return None
        counted = sum(self._labels(batch).ne(IGNORED).sum() for batch in batches)
        assert isinstance(counted, Tensor)
        counted = counted.to(self._parts.device)
        if self._parts.processes.count > 1:
            counted = self._parts.accelerator.gather(counted).sum()
        # a floating-point number, as transformers divides by; where a step of answers has none, its loss is 0
        return counted.clamp(min=1) / 1

    def _labels(self, batch: Mapping[str, Any]) -> Tensor:
        if "shift_labels" in batch:
            return batch["shift_labels"]
        return batch["labels"][..., 1:] if self._shifts else batch["labels"]

    def __call__(
        self, model: Any, batch: dict[str, Any], *, items: Tensor | None, rows: int, examples: int
    ) -> tuple[Tensor, Any]:
        """Return the loss to add to those of the step's other micro-batches, and the model's output.

        Args:
            items: of the step, see `items`.
            rows: examples of this micro-batch from which something is learned.
            examples: those of the step, in all processes.
        """
        labels = None
        if self._smoother is not None:
            batch = self._before_smoothing(batch)
            labels = batch.pop("labels", None)
        scaled, processes = self._divides and items is not None, self._parts.processes.count
        output = model(**batch, **({"num_items_in_batch": items} if scaled else {}))
        if labels is None or self._smoother is None:
            loss = output["loss"]
        else:
            loss = self._smoother(output, labels, num_items_in_batch=items if scaled else None)
            loss = with_memory_loss(loss, output.get("memory_loss"), labels, items if scaled else None)
        # DDP takes the mean over processes
        return (loss if scaled else loss * (rows / examples)) * processes, output


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
