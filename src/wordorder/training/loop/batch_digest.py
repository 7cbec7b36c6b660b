"""Digests of the batches that training fed to the model, so that two runs can be compared."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from wordorder.training.loop.share import Spare

FED = "fed_rows"
"""Key under which a batch brings its rows as bytes from the collator to the training step."""

READ = ("input_ids", "labels", "shift_labels")
"""Tensors of a batch that are digested: the model's inputs, masks of masked LM included, and its labels."""

_MARKS = 32

Rows = dict[str, list[bytes]]
"""Name -> bytes of each row, without padding."""


class WithRows:
    """A collator that puts the batch's rows beside it, as bytes, while they are still on the CPU.

    A class, because the processes of a DataLoader receive it by pickling.

    Args:
        collate: makes the batch.
    """

    def __init__(self, collate: Callable[[Sequence[Any]], Mapping[str, Tensor]]) -> None:
        self.collate = collate

    def __call__(self, examples: Sequence[Any]) -> dict[str, Any]:
        """Return the batch with its rows under `FED`; they are empty for a `Spare`, from which nothing is learned."""
        batch = self.collate(examples)
        return {**batch, FED: {READ[0]: [b""]} if isinstance(examples, Spare) else rows_of(batch)}


def rows_of(batch: Mapping[str, Tensor]) -> Rows:
    """Return each row of a batch as bytes, without the tokens that the attention mask hides.

    Args:
        batch: on the CPU.
    """
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
    the digest of that to those of the steps before (BLAKE2b, 8 bytes). So it does not depend on padding, or on the
    pieces in which a row of a step is read: a model with a memory that reads a row in two segments has the digest of a
    model that reads it in one. It depends on everything else: which examples, in what order, with which masks and
    labels, and where steps end.

    Besides the last step's, it keeps the digests of the steps 1, 2, 4, 8, ... and of up to 32 multiples of one of them,
    so that a run can be compared with a longer one. Of several processes each digests its own share, see
    `of_all_processes`.

    Args:
        rows: micro-batches of a step that have rows of their own; micro-batch n goes on with the rows of n - rows.
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
        """Add a micro-batch to the digest.

        Args:
            step: the optimizer step that it belongs to, counted from 1.
            rows: from `rows_of`.
        """
        if step != self._step:
            self._close()
            self._step, self._micro = step, 0
        group = self._micro % self._groups
        self._micro += 1
        for name, values in rows.items():
            for row, value in enumerate(values):
                self._open.setdefault((group, row, name), []).append(value)

    def _close(self) -> None:
        """Add the digest of the finished step to the chain."""
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
        """Return the state for a checkpoint, between two steps."""
        self._close()
        marks = [[step, mark] for step, mark in self._marks.items()]
        return {"chain": self._chain, "step": self._step, "stride": self._stride, "marks": marks}

    def load_state(self, state: Mapping[str, Any] | None) -> None:
        """Restore the state from a checkpoint.

        Args:
            state: from `state`; None, of a checkpoint that has none, makes the digest unknown.
        """
        self._open.clear()
        if state is None:
            self._chain = None
            return
        self._chain, self._step, self._stride = state["chain"], int(state["step"]), int(state["stride"])
        self._marks = {int(step): mark for step, mark in state["marks"]}


def of_all_processes(found: Sequence[Mapping[str, str] | None]) -> dict[str, str] | None:
    """Return one digest per step of the batches of all processes; of one process, its own.

    Args:
        found: what each process found, in order, see `FedBatches.found`.
    """
    known = [marks for marks in found if marks is not None]
    if len(known) < len(found):
        return None
    if len(known) == 1:
        return dict(known[0])
    steps = [step for step in known[0] if all(step in marks for marks in known)]
    joined = {step: " ".join(marks[step] for marks in known) for step in steps}
    return {step: hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for step, text in joined.items()}


def same_batches(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Tell whether two runs were fed the same batches, as far as both have trained.

    Exact for runs of one length. Of runs of two lengths the last step that both have kept a digest of decides: at least
    half of the shorter run, and most of it where neither is twice as long as the other. What follows is not compared.

    Args:
        one: from `FedBatches.found`.
        other: likewise.
    """
    common = one.keys() & other.keys()
    if not common:
        return False
    last = max(common, key=int)
    return one[last] == other[last]
