"""The share of one process in each training batch: together all processes read what one process would."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from wordorder.data.examples.masking import IGNORED


class Spare(list[Any]):
    """Examples that another process learns from: a process without examples in a batch reads one without its labels."""


class ShareOfBatches(Sampler[list[Any]]):
    """The part of each batch that belongs to one process.

    Batch k of all P processes together holds the examples k P B .. (k + 1) P B - 1 of the order, process p the p-th
    part of them. So P processes with batches of B read, step for step, what one process with batches of P B reads. The
    last batch of an epoch may be smaller; it is divided as evenly as can be, and nothing is repeated to make it whole
    (accelerate and torch's DistributedSampler would). A process that is left without an example gets a `Spare`.

    Args:
        order: the examples of an epoch.
        batch_size: examples of one process, B.
        drop_last: leave out a last batch that is not whole.
        process: p, from 0.
        processes: P.
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
    """A data set whose examples have no labels where the keys are a `Spare`.

    Args:
        examples: by key, one or many at a time.
    """

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
    examples: Any,
    order: Any,
    args: Any,
    *,
    collate: Callable[[Sequence[Any]], Any],
) -> Any:
    """Build accelerate's loader of this process's share of the training examples.

    Args:
        examples: by key.
        order: the keys of an epoch.
        args: transformers.TrainingArguments.
        collate: makes a batch.
    """
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


def skip_batches(loader: Any, batches: int) -> Any:
    """Return a loader without its first batches, whose examples are not read.

    Args:
        loader: from `training_loader`.
        batches: how many an epoch has had.
    """
    from accelerate import data_loader

    library: Any = data_loader  # its functions are typed in part
    return library.skip_first_batches(loader, batches) if batches else loader
