"""The tensors that a function allocates, and how much of them is alive at once: on real tensors, or on fake ones.

Under torch's `FakeTensorMode` nothing is computed and nothing allocated, so that lengths of 100,000 take no memory:
operators answer with shapes alone, custom ones by their fake implementation. What an operator allocates inside, and
frees before it returns, is not seen in either way.
"""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """Record every storage that operators make while it is entered; views and operations in place make none."""

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.by = 0, ""
        """Elements of the largest tensor, and the operator that made it."""
        self.peak = 0
        """Most bytes alive at once, of those made since it was entered."""
        self._alive: dict[int, int] = {}
        self._bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        del types
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in given | self._alive.keys():
                self._add(tensor.untyped_storage(), tensor.element_size(), str(func))
        return result

    def _add(self, storage: torch.UntypedStorage, itemsize: int, by: str) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._alive[key] = size
        self._bytes += size
        self.peak = max(self.peak, self._bytes)
        if size // itemsize > self.largest:
            self.largest, self.by = size // itemsize, by
        weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self._bytes -= self._alive.pop(key)


def allocations(prepare: Callable[[], Callable[[], object]], *, fake: bool = True) -> Allocations:
    """Return what a function allocates; ``prepare`` makes its inputs, which do not count, and returns it."""
    if not fake:
        return _recorded(prepare())
    with FakeTensorMode():
        return _recorded(prepare())


def _recorded(run: Callable[[], object]) -> Allocations:
    with Allocations() as found:
        run()
    return found
