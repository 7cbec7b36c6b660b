"""The Trainer for running text: memory goes from batch to batch, in training and in evaluation."""

# transformers.Trainer is untyped for the most part, and so is whatever super() gives of it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn
from torch.utils.data import DataLoader

from wordorder.data import Lanes, RunningText
from wordorder.errors import RunFailed
from wordorder.tasks.scores import CausalTally, Tally
from wordorder.training.checkpoints.state_files import load_state, taken_up
from wordorder.training.loop.carried_memory import CarriedMemory, has_memory, score_running_text
from wordorder.training.loop.trainer import WordOrderTrainer

CARRIED = "carried"
"""Prefix of the files of a checkpoint that hold the memories of each process."""


class MemoryTrainer(WordOrderTrainer):
    """A `WordOrderTrainer` for texts in lanes, and for models with a memory.

    - Each micro-batch of an optimizer step has lanes of its own, and so a memory of its own; so has each process. With
      `segments` > 1 a step reads its lanes in as many pieces, one after another, with the weights that it began with.
    - Memories begin anew with each epoch, and where a batch says so by memory_reset.
    - They are in every checkpoint, so that a resumed run goes on to the bit.
    - Evaluation carries memories of its own through the lanes of `RunningText.scoring_lanes`, and leaves those of
      training alone.

    A model without a memory reads the same segments, each by itself, in training as in evaluation.

    Args:
        *args: see `WordOrderTrainer`.
        train_dataset: `Lanes`, of as many rows as an optimizer step has in all processes.
        eval_dataset: a `RunningText`.
        segments: pieces in which a step reads each lane's segment; the arguments' gradient_accumulation_steps counts
            them too.
        stride: for a model without a memory, tokens by which the windows advance in which it is scored; None = those
            of a segment, so that they do not overlap.
        **kwargs: see `WordOrderTrainer`.

    Raises:
        ValueError: the lanes are not as many as the rows of a step.
    """

    def __init__(
        self,
        *args: Any,
        train_dataset: Lanes,
        eval_dataset: RunningText,
        segments: int = 1,
        stride: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, train_dataset=train_dataset, eval_dataset=eval_dataset, segments=segments, **kwargs)
        self._segments, self._stride = segments, stride
        rows = rows_of_a_step(self.args, segments)
        if train_dataset.rows != rows:
            raise ValueError(
                f"train_dataset has {train_dataset.rows} lanes, but a step has {rows} rows (batch size x gradient "
                f"accumulation x processes); make it by training_lanes({rows}, seed=...)"
            )
        self._carries = has_memory(self.model.config)
        self._memories = self._fresh()
        self._micro = 0
        """Number of the next micro-batch within its step."""
        self._restored: list[CarriedMemory] | None = None

    def _fresh(self) -> list[CarriedMemory]:
        groups = self.args.gradient_accumulation_steps // self._segments
        return [CarriedMemory(carries=self._carries) for _ in range(groups)]

    def train(self, resume_from_checkpoint: Any = None, **arguments: Any) -> Any:
        """Train the model; see `ResumableTrainer.train`.

        Args:
            resume_from_checkpoint: see `ResumableTrainer.train`.
            **arguments: passed on.

        Raises:
            RunFailed: the checkpoint's memories are those of another number of processes or micro-batches.
        """
        if resume_from_checkpoint and self._carries:
            self._restored = self._restore(Path(resume_from_checkpoint))
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **arguments)

    def _restore(self, checkpoint: Path) -> list[CarriedMemory]:
        processes = len(list(checkpoint.glob(f"{CARRIED}-*.json")))
        if processes != self.args.world_size:
            raise RunFailed(
                f"{checkpoint} holds the memories of {processes} processes, this run has {self.args.world_size}, whose "
                "rows read other texts; resume with as many, or start anew"
            )
        name, memories = f"{CARRIED}-{self.args.process_index}", self._fresh()
        with taken_up(checkpoint, name):
            states = load_state(checkpoint, name)
            if len(states) != len(memories):
                raise RunFailed(
                    f"{checkpoint} holds the memories of {len(states)} micro-batches for each step, this run has "
                    f"{len(memories)}; resume with the same gradient_accumulation_steps"
                )
            for memory, state in zip(memories, states, strict=True):
                memory.load_state_dict(state, self.args.device)
        return memories

    def carried_state(self) -> Any:
        """Return the memories of this process; None for a model without a memory."""
        return [memory.state_dict() for memory in self._memories] if self._carries else None

    def _run_epoch(self, *args: Any, **kwargs: Any) -> Any:
        within = kwargs["epoch"] == kwargs["epochs_trained"] and kwargs["steps_trained_in_current_epoch"] > 0
        self._memories = self._restored if within and self._restored is not None else self._fresh()
        self._restored, self._micro = None, 0
        return super()._run_epoch(*args, **kwargs)

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> Any:
        # transformers counts shift_labels, but only where there are labels too
        named = [{**batch, "labels": batch["shift_labels"]} for batch in batch_samples]
        return super()._get_num_items_in_batch(named, device)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Run one forward and backward pass with the memory of this micro-batch; see transformers.Trainer."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._micro = (self._micro + 1) % len(self._memories)
        return loss

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Compute the loss of a batch, given its memory; see transformers.Trainer."""
        memory = self._memories[self._micro]
        loss, output = super().compute_loss(
            model, memory.put_in(inputs), return_outputs=True, num_items_in_batch=num_items_in_batch
        )
        memory.take(output)
        return (loss, output) if return_outputs else loss

    def _tally(self, model: Any, dataset: RunningText) -> Tally:
        tally = cast(CausalTally, self._make_tally(self.args.device, dataset))
        streams = list(self._streams(dataset))
        with self._in_step(model, sum(map(len, streams)), dataset.windows()):
            for batches in streams:
                score_running_text(model, batches, tally, device=self.args.device, carries=self._carries)
        return tally

    def _streams(self, text: RunningText) -> "Iterator[DataLoader[Any]]":
        """Yield this process's share of a text, in streams of batches that memory is carried through."""
        if not self._carries:
            yield self._batches(text.windows(self._stride))
            return
        text = text.in_segments(text.length // self._segments)
        share = slice(self.args.process_index, None, self.args.world_size)
        for lanes in text.scoring_lanes(share, most=self.args.per_device_eval_batch_size):
            yield self._batches(lanes, share=range(len(lanes)), batch_size=lanes.rows)


def rows_of_a_step(args: Any, segments: int = 1) -> int:
    """Return the number of rows that one optimizer step reads, in all micro-batches and processes together.

    Args:
        args: transformers.TrainingArguments.
        segments: micro-batches of a step that go on with the same rows.
    """
    return args.train_batch_size * (args.gradient_accumulation_steps // segments) * args.world_size
