"""Exact scores of a model on a data set: sums over all predictions, divided once."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100


class Tally:
    """Sums of what every prediction contributes, from which the scores follow exactly, whatever the batches.

    Args:
        device: where the sums are kept; nothing waits for the device before `scores`.
        classes: number of classes, for macro-F1; None for tasks that predict tokens.
    """

    def __init__(self, device: torch.device, *, classes: int | None = None) -> None:
        # float64: a sum of ten million float32 losses would lose its last three digits. MPS has no float64.
        wide = torch.float32 if device.type == "mps" else torch.float64
        self._loss = torch.zeros((), dtype=wide, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._count = torch.zeros((), dtype=torch.int64, device=device)
        self._confusion = torch.zeros(classes, classes, dtype=torch.int64, device=device) if classes else None

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Count one batch.

        Args:
            logits: one row for each label, or one for each label that is not -100, in the same order.
            labels: -100 where nothing is predicted.
        """
        labels = labels.reshape(-1)
        logits = logits.reshape(-1, logits.shape[-1])
        chosen = labels != IGNORED
        if logits.shape[0] == labels.shape[0]:
            logits = logits[chosen]
        labels = labels[chosen]
        losses = functional.cross_entropy(logits.float(), labels, reduction="none")
        predicted = logits.argmax(dim=-1)
        self._loss += losses.sum(dtype=self._loss.dtype)
        self._correct += (predicted == labels).sum()
        self._count += labels.numel()
        if self._confusion is not None:
            classes = self._confusion.shape[0]
            pairs = torch.bincount(labels * classes + predicted, minlength=classes * classes)
            self._confusion += pairs.view(classes, classes)

    def reduce(self, add_over_processes: Callable[[Tensor], Tensor]) -> None:
        """Add up the sums of all processes.

        Args:
            add_over_processes: gives the sum of a tensor over all processes.
        """
        self._loss, self._correct, self._count = map(add_over_processes, (self._loss, self._correct, self._count))
        if self._confusion is not None:
            self._confusion = add_over_processes(self._confusion)

    def scores(self) -> dict[str, float]:
        """The scores: loss in nats for each prediction, accuracy from 0 to 1; perplexity (tokens), macro_f1 (classes).

        Classes that occur neither among the labels nor among the predictions are left out of macro-F1.
        """
        count = int(self._count)
        if not count:
            return {"loss": math.nan, "accuracy": math.nan}
        loss = float(self._loss) / count
        result = {"loss": loss, "accuracy": int(self._correct) / count}
        if self._confusion is None:
            # exp overflows above 709 nats, and JSON has no infinity.
            return result | {"perplexity": math.exp(min(loss, 700.0)), "tokens": count}
        hits = self._confusion.diagonal().double()
        present = self._confusion.sum(0) + self._confusion.sum(1)
        f1 = 2 * hits[present > 0] / present[present > 0]
        return result | {"macro_f1": float(f1.mean()), "examples": count}


def score(
    model: Callable[..., Any],
    batches: Iterable[Mapping[str, Tensor]],
    *,
    device: torch.device,
    classes: int | None = None,
) -> Tally:
    """Run a model over batches without gradients and tally its predictions.

    Args:
        model: takes a batch as keywords and gives an output with `.logits`; in evaluation mode already.
        batches: each holds `labels`, which the model gets too, so that it may compute only the logits that count.
        device: where the model is.
        classes: number of classes, for macro-F1; None for tasks that predict tokens.
    """
    tally = Tally(device, classes=classes)
    # Not inference_mode: a compiled model, or one that caches a table, could not be trained with it afterwards.
    with torch.no_grad():
        for batch in batches:
            there = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
            tally.add(model(**there).logits, there["labels"])
    return tally
