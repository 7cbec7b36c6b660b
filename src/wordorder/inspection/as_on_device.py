"""Run a step on shapes as the device would: fused attention, autocast, masks whose contents nobody looks at."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from wordorder.inspection.counted_operations import CountedOperations

_LOWER: frozenset[Any] = frozenset(
    {F.linear, F.conv1d, F.scaled_dot_product_attention, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm}
    | {torch.einsum, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.bmm, torch.Tensor.mm}
)
"""Functions that autocast runs in 16 bits on CUDA, of those that the models call; PyTorch, "Automatic Mixed Precision
package", https://docs.pytorch.org/docs/stable/amp.html, "Ops that autocast to float16"."""
_HIGHER: frozenset[Any] = frozenset(
    {F.layer_norm, F.rms_norm, F.softmax, F.log_softmax, F.cross_entropy, F.nll_loss, F.mse_loss}
    | {torch.softmax, torch.log_softmax, torch.Tensor.softmax, torch.Tensor.log_softmax, torch.logsumexp}
)
"""Functions that it runs in float32; the same page, "Ops that autocast to float32"."""


class AsOnDevice(TorchFunctionMode):
    """Mode in which a model treats meta tensors as it would those of a GPU.

    Fake tensors of a CPU are treated as real ones would be.

    Attention is one fused kernel (Dao et al. 2022, https://arxiv.org/abs/2205.14135): q, k, v, output and one number a
    row are kept, scores never leave the chip; backward computes them again, 5 products where forward has 2. A learned
    bias is read and its gradient written for each example, as the kernels of
    `scaled_dot_product_attention` do that give one. Of a causal mask half is computed. On a CPU the kernel is taken
    where torch takes it: without dropout and without a bias that learns.

    Args:
        counted: is told about the fused kernels.
        device: what it stands for.
        half: bf16 by autocast.
        labelled_share: how many places a mask of labels selects: what masked LM predicts.
    """

    def __init__(
        self, counted: CountedOperations, *, device: Literal["gpu", "cpu"], half: bool, labelled_share: float
    ) -> None:
        super().__init__()
        self._counted, self._half, self._share = counted, half and device == "gpu", labelled_share
        self._gpu = device == "gpu"
        self._copies: dict[int, Tensor] = {}

    def forget_copies(self) -> None:
        """Let go of the weights' copies: autocast has them until its context ends."""
        self._copies.clear()

    def watch(self, block: nn.Module) -> None:
        """Keep this mode on when backward runs a block's forward again: torch leaves modes behind there."""
        forward: Callable[..., Any] = block.forward

        def again(*args: Any, **kwargs: Any) -> Any:
            if self._counted.phase == "forward":
                return forward(*args, **kwargs)
            with self:
                output = forward(*args, **kwargs)
            self.forget_copies()
            return output

        block.forward = again

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function in the precision, and in the form, that it has on a GPU."""
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.__getitem__ and isinstance(args[1], Tensor) and args[1].dtype == torch.bool:
            return _selected(args[0], args[1], self._share)
        if self._half and torch.is_autocast_enabled("cpu"):  # whose state stands for it: see `wordorder.ops.precision`
            if func in _LOWER:
                args, kwargs = self._cast(args, kwargs, self._lowered)
            elif func in _HIGHER:
                args, kwargs = self._cast(args, kwargs, _raised)
        if func is F.scaled_dot_product_attention and (self._gpu or _fused_on_cpu(*args, **kwargs)):
            return fused_attention(self._counted, *args, **kwargs)
        return func(*args, **kwargs)

    def _cast(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], change: Callable[[Tensor], Tensor]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def each(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return tuple(each(item) for item in cast("tuple[Any, ...]", value))
            return change(value) if isinstance(value, Tensor) and value.is_floating_point() else value

        return tuple(each(value) for value in args), {name: each(value) for name, value in kwargs.items()}

    def _lowered(self, tensor: Tensor) -> Tensor:
        if tensor.dtype != torch.float32:
            return tensor
        if not (tensor.is_leaf and tensor.requires_grad):
            return tensor.to(torch.bfloat16)
        if id(tensor) not in self._copies:  # autocast casts a weight once in each forward
            self._copies[id(tensor)] = tensor.to(torch.bfloat16)
        return self._copies[id(tensor)]


def _raised(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _selected(tensor: Tensor, mask: Tensor, share: float) -> Tensor:
    """Select as many rows as the mask selects on average: shapes do not say which ones."""
    rows = max(1, round(share * mask.numel()))
    return tensor.flatten(0, mask.dim() - 1).index_select(0, torch.arange(rows, device=tensor.device))


def _fused_on_cpu(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, **_: Any
) -> bool:
    del key
    learns = attn_mask is not None and attn_mask.requires_grad
    return not learns and dropout_p == 0 and query.shape[-1] == value.shape[-1]


def fused_attention(
    counted: CountedOperations,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return a tensor of the output's shape, and report the kernel to the counter.

    The arguments are those of `scaled_dot_product_attention`.
    """
    del dropout_p, scale, enable_gqa  # drawn within the kernel; no arithmetic of note
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    return cast(Tensor, cast(Any, _Fused).apply(query, key, value, attn_mask, counted, is_causal))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, counted: Any, causal: bool) -> Tensor:
        output = q.new_empty(*q.shape[:3], v.shape[-1])
        row = q.new_empty(q.shape[:3], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, mask, output, row)
        ctx.counted, ctx.seen = counted, 0.5 if causal else 1.0
        read = [tensor for tensor in (q, k, v, output, row, mask) if tensor is not None]
        _tell(ctx, q, k, v, times=1.0, tensors=read)
        return output

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        q, k, v, mask, output, row = ctx.saved_tensors
        gradients = [torch.empty_like(tensor) for tensor in (q, k, v)]
        bias = torch.empty_like(mask, memory_format=torch.contiguous_format) if ctx.needs_input_grad[3] else None
        read = [q, k, v, output, row, *upstream, *gradients, *(t for t in (mask, bias) if t is not None)]
        _tell(ctx, q, k, v, times=2.5, tensors=read)
        return (*gradients, bias, None, None)


def _tell(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *, times: float, tensors: list[Tensor]) -> None:
    products = 2 * q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * (q.shape[-1] + v.shape[-1])
    moved = sum(min(t.numel() * t.dtype.itemsize, t.untyped_storage().nbytes()) for t in tensors)
    flops = int(times * ctx.seen * products)
    ctx.counted.add("attention", half=q.dtype.itemsize == 2, flops=flops, moved=moved)
