"""torch's fused attention kernels without a bias, each with its log-sum-exp and a backward pass that is given one.

They are private operators of torch, by device and dtype::

    CPU                      flash attention, bfloat16, float32, float64
    GPU, 16 bits             FlashAttention-2, heads of up to 256 channels, a multiple of 8
    GPU, float32             memory-efficient attention, heads of a multiple of 8

A kernel is handed what its forward pass drew for dropout back in the backward pass.
"""

# torch's operators are not typed
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention.call import Call

_OPERATORS: Any = torch.ops.aten

WIDEST = {"sm_80": 256, "sm_90": 256, "sm_100": 256}
"""Most channels of a head of FlashAttention-2, by the GPU's architecture."""
WIDEST_ELSEWHERE = 192


class Settings(NamedTuple):
    """The settings of a call: all keys are seen, or the lower triangle of as many keys as queries."""

    is_causal: bool
    scale: float
    dropout: float = 0.0


class Kernel(ABC):
    """A fused kernel; queries, keys and values have heads of one width, channels side by side."""

    multiple: ClassVar[int] = 1
    """The width of heads is a multiple of it."""

    @abstractmethod
    def forward(self, q: Tensor, k: Tensor, v: Tensor, settings: Settings) -> tuple[Tensor, Tensor, Any]:
        """Return output (B, H, T, D), log-sum-exp (B, H, T), and what was drawn."""

    @abstractmethod
    def backward(
        self, do: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, drawn: Any, settings: Settings
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v, of weights ``exp(scores - lse)`` and row sums of ``do output``."""


class FlashOnCPU(Kernel):
    """Flash attention on a CPU, which has no dropout."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, settings: Settings) -> tuple[Tensor, Tensor, Any]:
        is_causal, scale, _ = settings
        output, lse = _OPERATORS._scaled_dot_product_flash_attention_for_cpu(q, k, v, is_causal=is_causal, scale=scale)
        return output, lse, None

    def backward(
        self, do: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, drawn: Any, settings: Settings
    ) -> tuple[Tensor, Tensor, Tensor]:
        is_causal, scale, _ = settings
        return _OPERATORS._scaled_dot_product_flash_attention_for_cpu_backward(
            do, q, k, v, output, lse, 0.0, is_causal, scale=scale
        )


class FlashOnGPU(Kernel):
    """FlashAttention-2 (Dao 2023, https://arxiv.org/abs/2307.08691), as torch has it."""

    multiple = 8

    def forward(self, q: Tensor, k: Tensor, v: Tensor, settings: Settings) -> tuple[Tensor, Tensor, Any]:
        is_causal, scale, dropout = settings
        output, lse, *drawn = _OPERATORS._scaled_dot_product_flash_attention(
            q, k, v, dropout, is_causal, False, scale=scale
        )
        return output, lse, drawn[:-1]

    def backward(
        self, do: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, drawn: Any, settings: Settings
    ) -> tuple[Tensor, Tensor, Tensor]:
        is_causal, scale, dropout = settings
        *lengths, state, unused = drawn
        return _OPERATORS._scaled_dot_product_flash_attention_backward(
            do, q, k, v, output, lse, *lengths, dropout, is_causal, state, unused, scale=scale
        )


class EfficientOnGPU(Kernel):
    """Memory-efficient attention of xformers, as torch has it: the log-sum-exp of 32 rows at a time, the rest inf."""

    multiple = 8

    def forward(self, q: Tensor, k: Tensor, v: Tensor, settings: Settings) -> tuple[Tensor, Tensor, Any]:
        is_causal, scale, dropout = settings
        output, lse, *drawn = _OPERATORS._scaled_dot_product_efficient_attention(
            q, k, v, None, True, dropout, is_causal, scale=scale
        )
        return output, lse[..., : q.shape[2]], drawn

    def backward(
        self, do: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, drawn: Any, settings: Settings
    ) -> tuple[Tensor, Tensor, Tensor]:
        is_causal, scale, dropout = settings
        lse = F.pad(lse, (0, -lse.shape[-1] % 32), value=torch.inf)
        has_gradient = [True, True, True, False]  # of q, k, v and a bias
        *gradients, _ = _OPERATORS._scaled_dot_product_efficient_attention_backward(
            do, q, k, v, None, output, lse, *drawn, dropout, has_gradient, is_causal, scale=scale
        )
        return gradients[0], gradients[1], gradients[2]


def kernel_of(device: torch.device, dtype: torch.dtype) -> Kernel:
    """Return the kernel of a device and dtype that `FarAndNear` does not refuse."""
    if device.type == "cpu":
        return FlashOnCPU()
    return FlashOnGPU() if dtype.itemsize == 2 else EfficientOnGPU()


def refusal_on_gpu(call: Call) -> str | None:
    """Return why a GPU's kernel cannot do a call; None = it can."""
    if call.dtype == torch.float64:
        return "computes in bfloat16, float16 or float32 on a GPU; take None"
    if not call.gpu.startswith("sm_") or int(call.gpu[3:]) < 80:
        return f"wants a GPU of compute capability 8.0 or later, got {call.gpu or 'none'}; take None"
    if call.content:
        return "takes no terms by content on a GPU; take None"
    channels, most = call.head_dim + call.rank + call.return_lse, WIDEST.get(call.gpu, WIDEST_ELSEWHERE)
    if channels > most:
        return (
            f"takes heads of at most {most} channels on {call.gpu}, those of low rank and one for the log-sum-exp"
            f" included, got {channels}; take None"
        )
    return None
