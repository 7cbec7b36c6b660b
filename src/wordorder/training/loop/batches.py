"""The batches of training: the share of each process, and digests by which two runs can be compared."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from wordorder.tasks.scores import IGNORED

FED = "fed_rows"
"""Key under which a batch brings its rows as bytes from the collator to the training step."""

READ = ("input_ids", "labels", "shift_labels")
"""Tensors of a batch that are digested: the model's inputs, masks of masked LM included, and its labels."""

_MARKS = 32

Rows = dict[str, list[bytes]]
"""Name -> bytes of each row, without padding."""


class Spare(list[Any]):
    """Examples that another process learns from: a process without examples in a batch reads one without its labels."""


class StepSampler(Sampler[list[Any]]):
    """The micro-batches of one process, step by step.

    A step reads `segments` batches of `batch_size` examples, one after another, which all P processes share:
    micro-batch j of a batch holds its examples j P B .. (j + 1) P B - 1, with B = `micro_batch_size`, and process p the
    p-th part of them. So P processes read, step for step, what one process with micro-batches of P B reads. The last
    batch of an epoch may be smaller; it is divided as evenly as can be, and nothing is repeated to make it whole. A
    process that is left without an example gets a `Spare`.

    Args:
        order: the keys of an epoch's examples, told the epoch by `set_epoch`.
    """

    def __init__(
        self, order: Any, *, batch_size: int, micro_batch_size: int, segments: int, process: int, processes: int
    ) -> None:
        # not "sampler": accelerate would set the epoch of a sampler of that name to the number of iterations so far
        self.order, self.segments = order, segments
        self.batch_size, self._together = batch_size, micro_batch_size * processes
        self._process, self._processes = process, processes
        self._first = 0

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-len(self.order) // (self.batch_size * self.segments))

    def examples(self, step: int) -> int:
        """Return the examples that a step of the epoch reads, in all processes."""
        size = self.batch_size * self.segments
        return min(size, len(self.order) - step * size)

    def micro_batches(self, step: int) -> int:
        """Return the micro-batches of a step of the epoch, in each process."""
        return sum(-(-size // self._together) for size in self._sizes(step))

    def share(self, step: int) -> float:
        """Return the share of the epoch's micro-batches that are read after a step."""
        every = self.micro_batches(0)
        count = (self.steps - 1) * every + self.micro_batches(self.steps - 1)
        return min((step + 1) * every, count) / count

    def _sizes(self, step: int) -> list[int]:
        full, rest = divmod(self.examples(step), self.batch_size)
        return [*[self.batch_size] * full, *([rest] if rest else [])]

    def begin(self, epoch: int, *, first: int = 0) -> None:
        """Begin an epoch, from a step on: the examples before it are not read."""
        self.order.set_epoch(epoch)
        self._first = first

    def __len__(self) -> int:
        return sum(self.micro_batches(step) for step in range(self._first, self.steps))

    def __iter__(self) -> Iterator[list[Any]]:
        keys: Iterator[Any] = islice(iter(self.order), self._first * self.batch_size * self.segments, None)
        for step in range(self._first, self.steps):
            for size in self._sizes(step):
                batch = list(islice(keys, size))
                for start in range(0, size, self._together):
                    together = batch[start : start + self._together]
                    first, end = (
                        len(together) * border // self._processes for border in (self._process, self._process + 1)
                    )
                    yield together[first:end] or Spare(together[:1])


class WithSpares(Dataset[Any]):
    """A data set whose examples have no labels where the keys are a `Spare`."""

    def __init__(self, examples: Any) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, key: Any) -> Any:
        return self.examples[key]

    def __getitems__(self, keys: Sequence[Any]) -> Sequence[Any]:
        many = getattr(self.examples, "__getitems__", None)
        found = [self.examples[key] for key in keys] if many is None else many(list(keys))
        if not isinstance(keys, Spare):
            return found
        return Spare({name: _without(name, value) for name, value in example.items()} for example in found)


def _without(name: str, value: Any) -> Any:
    """Replace a label by the one that the loss ignores; a number stays, and its loss is weighted with 0."""
    if not name.endswith("labels"):
        return value
    tensor = torch.as_tensor(value)
    return tensor if tensor.is_floating_point() else torch.full_like(tensor, IGNORED)


def training_loader(
    examples: Any, batches: StepSampler, *, collate: Callable[[Sequence[Any]], Any], workers: int, pinned: bool
) -> "DataLoader[dict[str, Any]]":
    """Return the loader of training; each epoch begins with `StepSampler.begin`, and workers stay between epochs."""
    return DataLoader(
        WithSpares(examples),
        batch_sampler=batches,
        collate_fn=WithRows(collate),
        num_workers=workers,
        pin_memory=pinned,
        persistent_workers=workers > 0,
        generator=torch.Generator(),  # the global one belongs to dropout, however many workers there are
    )


class WithRows:
    """A collator that puts the batch's rows beside it, as bytes, while they are still on the CPU.

    A class, because the processes of a DataLoader receive it by pickling. The rows are empty for a `Spare`, from which
    nothing is learned.
    """

    def __init__(self, collate: Callable[[Sequence[Any]], Mapping[str, Tensor]]) -> None:
        self.collate = collate

    def __call__(self, examples: Sequence[Any]) -> dict[str, Any]:
        batch = self.collate(examples)
        return {**batch, FED: {READ[0]: [b""]} if isinstance(examples, Spare) else rows_of(batch)}


def rows_of(batch: Mapping[str, Tensor]) -> Rows:
    """Return each row of a batch as bytes, without the tokens that the attention mask hides."""
    mask = batch.get("attention_mask")
    present = None if mask is None or bool(mask.all()) else mask.bool().numpy()
    found: Rows = {}
    for name in READ:
        if name not in batch:
            continue
        values = batch[name] if batch[name].is_floating_point() else batch[name].int()  # half the bytes to digest
        array = values.contiguous().numpy()
        if present is None or array.shape != present.shape:
            found[name] = [row.tobytes() for row in array]
        else:
            found[name] = [row[there].tobytes() for row, there in zip(array, present, strict=True)]
    return found


class FedBatches:
    """A running digest of all training batches, a pure function of what was fed in which order.

    Of each optimizer step it takes what each row read in all micro-batches of the step, one after another, and chains
    the digest of that to those of the steps before (BLAKE2b, 8 bytes). So padding does not matter, nor how a step is
    divided into micro-batches, nor in how many segments a model with a memory reads a row; examples, their order,
    masks, labels and the ends of steps do.

    Besides the last step's, it keeps the digests of the steps 1, 2, 4, 8, ... and of up to 32 multiples of one of them,
    so that a run can be compared with a longer one. Of several processes each digests its own share, see
    `of_all_processes`.

    `rows` micro-batches of a step have rows of their own: micro-batch n goes on with the rows of n - rows.
    """

    def __init__(self, *, rows: int = 1) -> None:
        self._groups = rows
        self._chain: str | None = ""
        self._marks: dict[int, str] = {}
        self._stride = 1
        self._step = 0
        self._micro = self._first_row = 0
        self._open: dict[tuple[int, int, str], list[bytes]] = {}

    def take(self, step: int, rows: Rows) -> None:
        if step != self._step:
            self._close()
            self._step, self._micro = step, 0
        if self._micro % self._groups == 0:  # the rows of the step again, in their next segment
            self._first_row = 0
        self._micro += 1
        for name, values in rows.items():
            for row, value in enumerate(values, start=self._first_row):
                self._open.setdefault((0, row, name), []).append(value)
        self._first_row += len(rows[READ[0]])

    def _close(self) -> None:
        if not self._open or self._chain is None:
            self._open.clear()
            return
        digest = hashlib.blake2b(self._chain.encode(), digest_size=8)
        for place, pieces in sorted(self._open.items()):
            # lengths, so that no token can move from one row to the next unseen
            digest.update(f"{place} {sum(map(len, pieces))}".encode())
            for piece in pieces:
                digest.update(piece)
        self._open.clear()
        self._chain = digest.hexdigest()
        if self._marked(self._step):
            self._marks[self._step] = self._chain
        if self._step // self._stride > _MARKS:
            self._stride *= 2
            self._marks = {step: mark for step, mark in self._marks.items() if self._marked(step)}

    def _marked(self, step: int) -> bool:
        return step % self._stride == 0 or step.bit_count() == 1

    def found(self) -> dict[str, str] | None:
        """Return step -> digest of all batches up to it, the last step included; None where it is unknown.

        JSON has strings for keys, so these are strings too.
        """
        self._close()
        if self._chain is None or not self._step:
            return None
        return {str(step): mark for step, mark in sorted({**self._marks, self._step: self._chain}.items())}

    def state(self) -> dict[str, Any]:
        self._close()
        marks = [[step, mark] for step, mark in self._marks.items()]
        return {"chain": self._chain, "step": self._step, "stride": self._stride, "marks": marks}

    def load_state(self, state: Mapping[str, Any] | None) -> None:
        """Restore the state from a checkpoint; None, of one of other processes, makes the digest unknown."""
        self._open.clear()
        if state is None:
            self._chain = None
            return
        self._chain, self._step, self._stride = state["chain"], int(state["step"]), int(state["stride"])
        self._marks = {int(step): mark for step, mark in state["marks"]}


def of_all_processes(found: Sequence[Mapping[str, str] | None]) -> dict[str, str] | None:
    """Return one digest per step of the batches of all processes; of one process, its own."""
    known = [marks for marks in found if marks is not None]
    if len(known) < len(found):
        return None
    if len(known) == 1:
        return dict(known[0])
    steps = [step for step in known[0] if all(step in marks for marks in known)]
    joined = {step: " ".join(marks[step] for marks in known) for step in steps}
    return {step: hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for step, text in joined.items()}


def same_batches(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Tell whether two runs were fed the same batches up to the last step that both have a digest of.

    That is the end for runs of one length, and else at least half of the shorter run.
    """
    common = one.keys() & other.keys()
    if not common:
        return False
    last = max(common, key=int)
    return one[last] == other[last]
