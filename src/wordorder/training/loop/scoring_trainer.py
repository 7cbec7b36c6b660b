"""The part of the Trainer that scores: exact sums over a data set, by all processes together."""

# transformers.Trainer is untyped for the most part, and so is whatever super() gives of it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from wordorder.errors import RunFailed
from wordorder.tasks.scores import Tally, score
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.checkpoints.sharded import ask_for_nothing, is_sharded
from wordorder.training.loop.progress import Progress
from wordorder.training.loop.resumable import ResumableTrainer


class ScoringTrainer(ResumableTrainer):
    """A Trainer whose evaluation sums over all predictions and divides once.

    Nothing is padded or repeated to make the last batch whole, so that scores depend neither on the size of a batch nor
    on the number of processes.

    Args:
        model: with `.forward(..., labels=...)` giving `.loss` and `.logits`.
        args: transformers.TrainingArguments.
        collate: makes a batch from examples.
        make_tally: gives an empty tally of the task's scores on a device, for a data set.
        headline: the score that is shown beside the loss; accuracy stands in where it was not measured.
        progress: is told the scores.
        **arguments: see `ResumableTrainer`.
    """

    def __init__(
        self,
        model: Any,
        args: Any,
        *,
        collate: Any,
        make_tally: Callable[[torch.device, Any], Tally],
        headline: str,
        progress: Progress,
        **arguments: Any,
    ) -> None:
        super().__init__(model, args, **arguments)
        self._collate, self._make_tally, self._headline = collate, make_tally, headline
        self._progress = progress

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Compute exact scores: sums over all predictions, divided once.

        Args:
            eval_dataset: examples by index; None for the validation set.
            ignore_keys: not used.
            metric_key_prefix: put before each name, with an underscore; empty leaves the names alone.
        """
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        # DDP's wrapping would exchange buffers before each batch, of which a process may have fewer than another
        alone = self._processes.count == 1
        model: Any = self.model_wrapped if self.is_in_train and alone else self.model
        was_training = model.training
        model.eval()
        with self.accelerator.autocast():
            tally = self._tally(model, dataset)
        model.train(was_training)
        if self.args.world_size > 1:
            tally.reduce(lambda tensor: cast(Tensor, self.accelerator.reduce(tensor, "sum")), self._join)
        scores = tally.scores()
        if not math.isfinite(scores["loss"]):
            when = f"after step {self.state.global_step}"
            raise RunFailed(f"the validation loss is {scores['loss']} {when}; {last_good(self._folder)}")
        metrics = {
            f"{metric_key_prefix}_{name}" if metric_key_prefix else name: value for name, value in scores.items()
        }
        if self.is_in_train:
            self.log(metrics)
            step = f"step {self.state.global_step}/{self.state.max_steps}"
            self._progress.say(f"{step}  validation {self.in_short(scores)}")
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _tally(self, model: Any, dataset: Any) -> Tally:
        """Count the predictions for this process's share of a data set; the model is in evaluation mode."""
        tally = self._make_tally(self.args.device, dataset)
        batches = self._batches(dataset)
        with self._in_step(model, len(batches), dataset):
            return score(model, batches, tally, device=self.args.device)

    @contextmanager
    def _in_step(self, model: Any, batches: int, examples: Any) -> Generator[None]:
        """Run a sharded model as often as the process that has most batches; do nothing for other models."""
        if not is_sharded(self.model):
            yield
            return
        (most,) = self._processes.greatest(batches)  # before any has begun: each pass waits for all processes
        yield
        ids = torch.as_tensor(examples[0]["input_ids"])[None].to(self.args.device)
        ask_for_nothing(model, most - batches, {"input_ids": ids})

    def in_short(self, scores: Mapping[str, float]) -> str:
        """Return the loss and the headline score as one line.

        Args:
            scores: of one split.
        """
        headline = self._headline if self._headline in scores else "accuracy"
        return "  ".join(f"{name} {scores[name]:.4f}" for name in dict.fromkeys(("loss", headline)))

    def _join(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes, padded with rows of NaN where a process has fewer."""
        padded = self.accelerator.pad_across_processes(rows, dim=0, pad_index=cast(int, math.nan))
        return cast(Tensor, self.accelerator.gather(padded))

    def _share(self, dataset: Any) -> range:
        # Each process takes every n-th example, so that nothing is counted twice; transformers would repeat examples
        # to make the last batch whole.
        return range(self.args.process_index, len(dataset), self.args.world_size)

    def _batches(self, dataset: Any, *, share: range | None = None, batch_size: int | None = None) -> "DataLoader[Any]":
        # A generator of its own keeps evaluation from drawing on the global one.
        return DataLoader(
            dataset,
            batch_size=batch_size or self.args.per_device_eval_batch_size,
            sampler=cast(Any, self._share(dataset) if share is None else share),
            collate_fn=self._collate,
            num_workers=self.args.dataloader_num_workers,
            generator=torch.Generator(),
        )
