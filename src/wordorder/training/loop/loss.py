"""The loss of a micro-batch, as a share of the mean over all that its optimizer step predicts."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from transformers.trainer_pt_utils import LabelSmoother

from wordorder.tasks.scores import IGNORED
from wordorder.training.loop.training import Training


class StepLoss:
    """Losses that add up to the mean over an optimizer step, whatever its micro-batches and processes.

    A model that takes `num_items_in_batch` divides its sum by the predicted tokens of the whole step. Another one
    returns the mean of a micro-batch, which is divided by the number of micro-batches.
    """

    def __init__(self, training: Training, before_smoothing: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.training, self._parts, self._before_smoothing = training, training.parts, before_smoothing
        model, args = self._parts.model, self._parts.args
        takes = inspect.signature(model.forward).parameters.values()
        named = any(one.name == "num_items_in_batch" or one.kind == one.VAR_KEYWORD for one in takes)
        # The loss of numbers is a mean whatever it is told.
        self._divides = named and getattr(model.config, "problem_type", None) != "regression"
        # Such a model predicts each token from those before it, so that the first one is never predicted.
        self._shifts = type(model).__name__.endswith("ForCausalLM")
        epsilon = args.label_smoothing_factor
        self._smoother: Callable[..., Tensor] | None = LabelSmoother(epsilon=epsilon) if epsilon else None

    def items(self, batches: Sequence[Mapping[str, Any]]) -> Tensor | None:
        """Return the number of predicted tokens in the micro-batches of a step, of all processes together."""
        if not self._divides or not batches or not {"labels", "shift_labels"} & batches[0].keys():
            return None
        counted = sum(self._labels(batch).ne(IGNORED).sum() for batch in batches)
        assert isinstance(counted, Tensor)
        args = self._parts.args
        if args.average_tokens_across_devices and self._parts.processes.count > 1:
            counted = self._parts.accelerator.gather(counted.to(self._parts.device)).sum()
        return counted.to(self._parts.device) / 1  # a floating-point number, as transformers divides by

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
        scaled = self._divides and items is not None
        output = model(**batch, **({"num_items_in_batch": items} if scaled else {}))
        if labels is None or self._smoother is None:
            loss = output["loss"]
        else:
            loss = self._smoother(output, labels, num_items_in_batch=items if scaled else None)
        if scaled and self._parts.args.average_tokens_across_devices:
            loss = loss * self._parts.processes.count  # DDP takes the mean over processes
        if not self._divides and self._parts.processes.count > 1:
            # The mean over processes is to be that over the examples of all of them, of which this one may have fewer.
            (all_rows,) = self._parts.processes.total(rows)
            loss = loss * (rows * self._parts.processes.count / all_rows)
        return (loss if scaled else loss / micro_batches), output
