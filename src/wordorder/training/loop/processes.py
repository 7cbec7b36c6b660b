"""Exchange values other than gradients between the processes of one run: on the CPU, and without pickle."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch import distributed as _distributed

from wordorder.errors import RunFailed
from wordorder.launch import process_count
from wordorder.training.checkpoints.state import pack_state, unpack_state

dist: Any = _distributed  # its functions have no types


class Processes:
    """The processes of one run. All of them must call every method at the same place of the program.

    What is exchanged goes over a group of its own on the CPU (gloo), so that no accelerator is waited for. Alone, a
    process asks nobody.
    """

    def __init__(self, index: int, count: int) -> None:
        self.index, self.count = index, count
        own_group = count > 1 and dist.get_backend() != "gloo"
        self._group: Any = dist.new_group(backend="gloo") if own_group else None

    @property
    def is_main(self) -> bool:
        """True in process 0, the only one that prints and writes."""
        return self.index == 0

    def greatest(self, *values: int) -> list[int]:
        return self._reduced(values, "max")

    def total(self, *values: int) -> list[int]:
        return self._reduced(values, "sum")

    def _reduced(self, values: tuple[int, ...], how: str) -> list[int]:
        if self.count == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(numbers, {"max": dist.ReduceOp.MAX, "sum": dist.ReduceOp.SUM}[how], group=self._group)
        return [int(number) for number in numbers]

    def everyones(self, state: Any) -> list[Any]:
        """Return the values of all processes, in order; they are what `save_state` takes, and small."""
        return self._gathered(state, everywhere=True)

    def given_to_main(self, state: Any) -> list[Any]:
        """Return the values of all processes, in order, in process 0; an empty list in the others."""
        return self._gathered(state, everywhere=False)

    def _gathered(self, state: Any, *, everywhere: bool) -> list[Any]:
        if self.count == 1:
            return [state]
        own = self._as_long_as_any(pack_state(state))
        found = [torch.empty_like(own) for _ in range(self.count if everywhere or self.is_main else 0)]
        if everywhere:
            dist.all_gather(found, own, group=self._group)
        else:
            dist.gather(own, found or None, dst=0, group=self._group)
        return [unpack_state(_content(piece)) for piece in found]

    def _as_long_as_any(self, content: bytes) -> Tensor:
        """Return the bytes after their length, padded to the length of the longest in any process."""
        (longest,) = self.greatest(len(content))
        room = 8 + longest
        filled = (len(content).to_bytes(8, "little") + content).ljust(room, b"\0")
        return torch.frombuffer(bytearray(filled), dtype=torch.uint8)

    def raise_first(self, fault: str | None) -> None:
        """Raise the first fault of any process in all of them, so that all end alike; do nothing without a fault."""
        if not self.greatest(fault is not None)[0]:
            return
        raise RunFailed(next(found for found in self.everyones(fault) if found is not None))


def _content(received: Tensor) -> bytes:
    raw = received.numpy().tobytes()
    return raw[8 : 8 + int.from_bytes(raw[:8], "little")]


@contextmanager
def first_process_first() -> Generator[None]:
    """Let the first process of each machine run a block before the others, which then find its results in a cache."""
    if process_count() == 1:
        yield
        return
    from accelerate import PartialState

    with PartialState().local_main_process_first():
        yield
