"""Attention with a bias that learns by Triton kernels, for GPUs."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from wordorder.attention.backends.backend import Backend
from wordorder.attention.call import Call
from wordorder.encodings import Terms
from wordorder.ops import Bias, Mask

if TYPE_CHECKING:
    from wordorder.attention.backends.triton.operands import KernelBias, KernelMask

TRITON = find_spec("triton") is not None
"""Whether Triton is installed; torch brings it along on Linux with a GPU."""
WIDEST_HEAD = 256
"""Most channels of a head that the kernels have registers for."""
WIDEST_TRAINED = 128
"""The same in training."""
WIDEST_FLOAT32 = 64
"""The same for float32, whose products are exact and not by tensor cores."""
MOST_PROGRAMS = 65_535
"""Most heads of all examples; in a traced call, whose batch is a symbol, CUDA refuses more examples than that."""
AMD_GPUS = ("gfx90a", "gfx942", "gfx950")
"""AMD's GPUs on which the kernels keep to registers and shared memory, as the compiler says."""
SPARE_RANK = 16
"""Channels that low-rank factors may have beyond those of the widest head."""


class OfKernels(NamedTuple):
    """The bias, and bias and mask as the kernels read them."""

    bias: Bias | None
    kernel_bias: "KernelBias"
    kernel_mask: "KernelMask"


class Triton(Backend):
    """On a GPU: the log-sum-exp, a bias too large to write out, and training where it was measured to be faster."""

    name = "triton"
    grouped = True

    def refusal(self, call: Call) -> str | None:
        if call.return_weights:
            return "does not return attention weights; take backend='reference' or None"
        if refusal := compiler_refusal(call):
            return refusal
        # Triton's interpreter runs the kernels on a CPU, slowly, to test them
        if call.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            return "computes on a GPU; take backend=None"
        if call.dtype == torch.float64 or call.transformed:
            return "computes in float16, bfloat16 or float32, outside torch.func; take backend=None"
        widest = WIDEST_FLOAT32 if call.dtype == torch.float32 else WIDEST_TRAINED if call.training else WIDEST_HEAD
        if call.head_dim > widest:
            return f"takes heads of at most {widest} channels here, got {call.head_dim}; take backend=None"
        if not call.traced and call.batch * call.heads > MOST_PROGRAMS:
            return f"takes at most {MOST_PROGRAMS:,} heads of all examples; take a smaller batch or backend=None"
        if call.rank > (highest := widest + SPARE_RANK):
            return f"takes low-rank factors of at most {highest} channels here, got {call.rank}; take backend=None"
        return None

    def at_home(self, call: Call) -> bool:
        if call.device.type != "cuda":
            return False
        from wordorder.attention.backends.triton.measured import is_faster, is_narrow, is_too_large

        return call.return_lse or is_too_large(call) or is_faster(call) or is_narrow(call)

    def compiles(self, call: Call) -> bool:
        del call
        return True

    def prepare(self, terms: Terms, mask: Mask | Tensor | None, call: Call) -> OfKernels:
        from wordorder.attention.backends.triton.operands import kernel_bias, kernel_mask

        read_bias = kernel_bias(terms.bias, call.heads, call.dtype)
        return OfKernels(terms.bias, read_bias, kernel_mask(mask, call.batch, call.device))

    def attend(
        self,
        q_BHTD: Tensor,
        k_BHSD: Tensor,
        v_BHSE: Tensor,
        prepared: OfKernels,
        added: Bias | None,
        *,
        scale: float,
        dropout: float,
        return_lse: bool,
    ) -> tuple[Tensor, Tensor | None]:
        from wordorder.attention.backends.triton.operands import kernel_bias
        from wordorder.attention.backends.triton.operators import attend  # needs Triton

        read_bias = prepared.kernel_bias
        if added is not None:
            whole = added if prepared.bias is None else prepared.bias + added
            read_bias = kernel_bias(whole, q_BHTD.shape[1], q_BHTD.dtype)
        mask = prepared.kernel_mask
        return attend(q_BHTD, k_BHSD, v_BHSE, scale, read_bias, mask, dropout=dropout, return_lse=return_lse)


def compiler_refusal(call: Call) -> str | None:
    """Return why a GPU runs no kernel that Triton compiles; None where it can."""
    if not TRITON:
        return "needs Triton; install it with pip install triton"
    if call.gpu.startswith("gfx") and call.gpu not in AMD_GPUS:
        return f"runs on {', '.join(AMD_GPUS)} of AMD's GPUs, not on {call.gpu}; take backend=None"
    if call.gpu.startswith("sm_") and int(call.gpu.removeprefix("sm_")) < 80:
        return f"wants a GPU of compute capability 8.0 (sm_80) or above, got {call.gpu}; take backend=None"
    return "failed the self-test of Triton's kernels on this device; take backend=None" if call.kernels_fail else None
