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


class ShareOfBatches(Sampler[list[Any]]):
    """The part of each batch that belongs to one process.

    Batch k of all P processes together holds the examples k P B .. (k + 1) P B - 1 of the order, process p the p-th
    part of them. So P processes with batches of B read, step for step, what one process with batches of P B reads. The
    last batch of an epoch may be smaller; it is divided as evenly as can be, and nothing is repeated to make it whole.
    A process that is left without an example gets a `Spare`.
    """

    def __init__(self, order: Any, *, batch_size: int, drop_last: bool, process: int, processes: int) -> None:
        # not "sampler": accelerate would set the epoch of a sampler of that name to the number of iterations so far
        self.order = order
        self.batch_size, self.drop_last = batch_size, drop_last
        self.process, self.processes = process, processes

    def __len__(self) -> int:
        full, rest = divmod(len(self.order), self.batch_size * self.processes)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[Any]]:
        keys: Iterator[Any] = iter(self.order)
        size = self.batch_size * self.processes
        for _ in range(len(self)):
            batch: list[Any] = list(islice(keys, size))
            first, end = (len(batch) * border // self.processes for border in (self.process, self.process + 1))
            yield batch[first:end] or Spare(batch[:1])


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


def training_loader(examples: Any, order: Any, args: Any, *, collate: Callable[[Sequence[Any]], Any]) -> Any:
    from accelerate import data_loader

    library: Any = data_loader  # its functions are typed in part
    batches = ShareOfBatches(
        order,
        batch_size=args.per_device_train_batch_size,
        drop_last=args.dataloader_drop_last,
        process=args.process_index,
        processes=args.world_size,
    )
    loader: DataLoader[dict[str, Tensor]] = DataLoader(
        WithSpares(examples),
        batch_sampler=batches,
        collate_fn=collate,
        num_workers=args.dataloader_num_workers,
        pin_memory=args.dataloader_pin_memory,
        persistent_workers=args.dataloader_persistent_workers,
        multiprocessing_context=args.dataloader_multiprocessing_context,
        prefetch_factor=args.dataloader_prefetch_factor,
    )
    # one process: the batches are shares already
    return library.prepare_data_loader(loader, args.device, num_processes=1, process_index=0, put_on_device=True)


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
    the digest of that to those of the steps before (BLAKE2b, 8 bytes). So padding does not matter, nor in how many
    segments a model with a memory reads a row; examples, their order, masks, labels and the ends of steps do.

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
        self._micro = 0
        self._open: dict[tuple[int, int, str], list[bytes]] = {}

    def take(self, step: int, rows: Rows) -> None:
        if step != self._step:
            self._close()
            self._step, self._micro = step, 0
        group = self._micro % self._groups
        self._micro += 1
        for name, values in rows.items():
            for row, value in enumerate(values):
                self._open.setdefault((group, row, name), []).append(value)

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
