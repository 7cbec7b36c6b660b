"""Operations of a step as they are issued: arithmetic, bytes moved, and the most memory that was alive at once."""

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode  # flop_counter and torch's own trackers are made of it
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

Phase = Literal["forward", "backward"]
Kind = Literal["matmul", "attention", "memory"]

aten = torch.ops.aten
_PRODUCTS = {
    **{packet: formula for packet, formula in flop_registry.items()},
    # in place, which the registry leaves out
    aten.baddbmm_: flop_registry[aten.baddbmm],
    aten.addmm_: flop_registry[aten.addmm],
}
_LOOK_UPS = {aten.embedding, aten.index_select, aten.index, aten.gather}
"""Operations that read of their first argument only what they return."""
_MADE = {aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided, aten.set_}
"""Operations that allocate, and touch nothing."""
_PER_HEAD = {aten.bmm, aten.baddbmm, aten.baddbmm_}


class Work(NamedTuple):
    """One kind of operation of a step; equal ones are counted together."""

    phase: Phase
    kind: Kind
    """matmul: products with weights. attention: everything on tensors that have an axis of heads: scores, softmax,
    biases, rotations. memory: all else, which moves bytes and hardly computes."""
    half: bool
    """True if the products are in 16 bits."""
    flops: int
    moved: int
    """Bytes read and written."""


class CountedOperations(TorchDispatchMode):
    """Counts every operation within it, and every tensor that an operation makes until nobody holds it.

    Bytes of an operation are those of its arguments and results, each once: what an unfused kernel moves. Views move
    nothing. Weights and accumulated gradients are not among the living bytes, which are known without running.

    Args:
        model: its parameters are left out; gradients are from the moment on that they are accumulated.
        heads: sizes of the axis of heads.
        vocabulary: size of the last axis by which logits are known.
    """

    def __init__(self, model: nn.Module, *, heads: Iterable[int], vocabulary: int) -> None:
        cast(Any, super()).__init__()
        self.phase: Phase = "forward"
        self.work: Counter[Work] = Counter()
        self.operations: Counter[Phase] = Counter()
        self.peak: dict[str, int] = {}
        """Bytes by what they are, logits, copies (of weights in 16 bits) and activations, when most were alive."""
        self._heads, self._vocabulary = frozenset(heads), vocabulary
        self._parameters = {id(p.untyped_storage()) for p in model.parameters()}
        self._kept = [p.untyped_storage() for p in model.parameters()]  # so that an identity is not used again
        self._alive: dict[int, tuple[str, int]] = {}
        self._now: Counter[str] = Counter()
        self._most = 0
        parameters: list[Any] = list(model.parameters())
        self._hooks: list[Any] = [p.register_post_accumulate_grad_hook(self._accumulated) for p in parameters]

    def __exit__(self, *raised: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        cast(Any, super()).__exit__(*raised)

    def add(self, kind: Kind, *, half: bool, flops: int, moved: int) -> None:
        """Count an operation that no tensor function stands for, such as a fused kernel."""
        self.work[Work(self.phase, kind, half, flops, moved)] += 1
        self.operations[self.phase] += 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation and count it."""
        if func is aten._local_scalar_dense.default:
            return 0  # on shapes alone: token ids are zeros
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        given, made = _tensors((args, kwargs)), _tensors(result)
        if not made:
            return result
        for tensor in made:
            self._note(func, tensor, given)
        packet: Any = func.overloadpacket
        if not (func.is_view or packet in _MADE):
            self._count(packet, args, kwargs, result, given, made)
        return result

    def _count(
        self, packet: Any, args: Any, kwargs: dict[str, Any], result: Any, given: list[Tensor], made: list[Tensor]
    ) -> None:
        formula, per_head = _PRODUCTS.get(packet), packet in _PER_HEAD or self._on_heads((*given, *made))
        if packet in _LOOK_UPS:
            moved = 2 * sum(_size(tensor) for tensor in made)
        else:
            moved = sum(_size(tensor) for tensor in (*given, *made))
        flops = 0
        if formula is not None:
            kwargs.pop("out", None)
            flops = int(formula(*args, **kwargs, out_val=result))
        kind: Kind = "attention" if per_head else "matmul" if formula is not None else "memory"
        self.add(kind, half=made[0].dtype.itemsize == 2, flops=flops, moved=moved)

    def _on_heads(self, tensors: Iterable[Tensor]) -> bool:
        return any(
            (tensor.dim() == 4 and tensor.shape[1] in self._heads)
            or (tensor.dim() == 3 and tensor.shape[0] in self._heads and tensor.shape[-1] == tensor.shape[-2])
            for tensor in tensors
        )

    def _note(self, func: Any, tensor: Tensor, given: list[Tensor]) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._alive or key in self._parameters:
            return
        what = "activations"
        if tensor.dim() > 1 and tensor.shape[-1] == self._vocabulary:
            what = "logits"
        elif func is aten._to_copy.default and id(given[0].untyped_storage()) in self._parameters:
            what = "copies"
        self._alive[key] = (what, storage.nbytes())
        weakref.finalize(storage, self._gone, key)
        self._now[what] += storage.nbytes()
        self._look()

    def _look(self) -> None:
        total = self._now.total()
        if total > self._most:
            self._most, self.peak = total, dict(self._now)

    def _gone(self, key: int) -> None:
        what, size = self._alive.pop(key, ("activations", 0))
        self._now[what] -= size

    def _accumulated(self, parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None and id(gradient.untyped_storage()) in self._alive:
            self._gone(id(gradient.untyped_storage()))


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _size(tensor: Tensor) -> int:
    """Return the bytes of a tensor, those that expanding it repeats counted once."""
    return min(tensor.numel() * tensor.dtype.itemsize, tensor.untyped_storage().nbytes())
