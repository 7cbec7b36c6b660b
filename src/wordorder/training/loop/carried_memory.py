"""Carry a memory from batch to batch, in training and in evaluation."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wordorder.errors import RunFailed
from wordorder.memory import MemoryState
from wordorder.tasks.scores import UNITS, NextTokenTally
from wordorder.training.checkpoints.state_files import load_state, taken_up

CARRIED = "carried"
"""Prefix of the files of a checkpoint that hold the memories of each process."""


def has_memory(config: Any) -> bool:
    return getattr(config, "memory", "none") != "none"


class CarriedMemory:
    """The memory of one stream of batches whose rows are lanes, see `wordorder.data.examples.lanes`.

    Before each batch, rows that begin a new text forget what they had; after it, the model's memory is taken up::

        output = model(**carried.put_in(batch))
        carried.take(output)

    Args:
        carries: False for a model without a memory, which is then given none.
    """

    def __init__(self, *, carries: bool = True) -> None:
        self._carries = carries
        self.state: MemoryState | None = None
        """The memory before the next batch; None where it is empty."""

    def put_in(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a batch of lanes as the model takes it: with the memory, and without memory_reset, applied here.

        Raises:
            ValueError: the batch has not as many rows as the memory, so that nobody knows whose memory is whose.
        """
        inputs = dict(batch)
        reset = inputs.pop("memory_reset", None)
        if not self._carries:
            return inputs
        rows = inputs["input_ids"].shape[0]
        if self.state is not None and self.state.batch != rows:
            raise ValueError(
                f"the batch has {rows} rows and the memory before it {self.state.batch}: each row of a batch must go "
                "on with that of the batch before; divide the text into lanes, or begin with a new CarriedMemory"
            )
        if self.state is not None and reset is not None:
            self.state = self.state.reset(reset)
        return {**inputs, "memory": self.state}

    def take(self, output: Any) -> None:
        if self._carries:
            self.state = output.memory

    def state_dict(self) -> dict[str, Tensor] | None:
        return None if self.state is None else self.state.to("cpu").state_dict()

    def load_state_dict(self, tensors: Mapping[str, Tensor] | None, device: torch.device) -> None:
        self.state = None if tensors is None else MemoryState.from_state_dict(tensors).to(device)


class Memories:
    """The memories of a process in training: one for each micro-batch of a step whose rows are its own.

    With `segments` > 1 a step reads its lanes in as many pieces, one micro-batch after another, with the weights that
    it began with. Memories begin anew with each epoch.

    Args:
        groups: micro-batches of a step that have rows of their own.
        carries: see `CarriedMemory`.
    """

    def __init__(self, groups: int, *, carries: bool) -> None:
        self.carries = carries
        self._groups = groups
        self._restored: list[CarriedMemory] | None = None
        self._now = self._fresh()

    def _fresh(self) -> list[CarriedMemory]:
        return [CarriedMemory(carries=self.carries) for _ in range(self._groups)]

    def begin_epoch(self, *, within: bool) -> None:
        self._now = self._restored if within and self._restored is not None else self._fresh()
        self._restored = None

    def of(self, micro_batch: int) -> CarriedMemory:
        return self._now[micro_batch % self._groups]

    def state_dict(self) -> list[dict[str, Tensor] | None] | None:
        now = self._now if self._restored is None else self._restored
        return [memory.state_dict() for memory in now] if self.carries else None

    def restore(self, checkpoint: Path, *, process: int, processes: int, device: torch.device) -> None:
        """Read the memories of a checkpoint, for the epoch that begins next."""
        if not self.carries:
            return
        saved = len(list(checkpoint.glob(f"{CARRIED}-*.json")))
        if saved != processes:
            raise RunFailed(
                f"{checkpoint} holds the memories of {saved} processes, this run has {processes}, whose "
                "rows read other texts; resume with as many, or start anew"
            )
        name, memories = f"{CARRIED}-{process}", self._fresh()
        with taken_up(checkpoint, name):
            states = load_state(checkpoint, name)
            if len(states) != len(memories):
                raise RunFailed(
                    f"{checkpoint} holds the memories of {len(states)} micro-batches for each step, this run has "
                    f"{len(memories)}; resume with the same micro_batch_size"
                )
            for memory, state in zip(memories, states, strict=True):
                memory.load_state_dict(state, device)
        self._restored = memories


def score_running_text(
    model: Callable[..., Any],
    batches: Iterable[Mapping[str, Tensor]],
    tally: NextTokenTally,
    *,
    device: torch.device,
    carries: bool = False,
) -> NextTokenTally:
    """Run a model over running text, lanes or windows, as `wordorder.tasks.scores.score` does over other examples.

    With `carries` the model's memory goes from batch to batch, as lanes want it; without, each row is read by itself.
    """
    carried = CarriedMemory(carries=carries)
    # Not inference_mode: a compiled model, or one that caches a table, could not be trained with it afterwards.
    with torch.no_grad():
        for batch in batches:
            there = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
            labels, units = there.pop("shift_labels"), there.pop(UNITS, None)
            output = model(**carried.put_in(there))
            carried.take(output)
            tally.add_predictions(output.logits, labels, units)
    return tally
