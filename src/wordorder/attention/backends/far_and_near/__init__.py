"""Attention with a bias that is constant beyond a distance: torch's fused kernels for far keys, tiles for near ones."""

from typing import Any

import torch
from torch import Tensor

from wordorder.attention.backends.backend import Backend
from wordorder.attention.call import Call
from wordorder.encodings import Terms
from wordorder.ops import Bias, Mask

OPERATORS = {"cpu": "_scaled_dot_product_flash_attention_for_cpu", "cuda": "_scaled_dot_product_flash_attention"}
"""torch's fused kernels, private operators: they return the log-sum-exp, and their backward passes take it."""
FEWEST_KEYS = {torch.bfloat16: (512, 1024, 1024), torch.float32: (2048, 2048, 3072), torch.float64: (2048, 2048, 3072)}
"""Keys from which it beat tiles: of low rank, a table, both (two-sided without AVX-512 twice); twice for inference."""
NARROW = {torch.bfloat16: 4, torch.float32: 8, torch.float64: 8}
"""The band where the table differs is at most one part in so many of the keys."""


class FarAndNear(Backend):
    """Long texts, where all terms are constant beyond a distance or of low rank; by choice on CPUs."""

    name = "far-and-near"

    def refusal(self, call: Call) -> str | None:
        on_cpu = call.device.type == "cpu"
        lacking = on_cpu and (call.dtype == torch.float16 or call.dropout > 0)
        if call.traced or call.transformed or call.return_weights or lacking:
            return "gives no weights, no dropout or float16 on a CPU, nothing in torch.compile or torch.func; take None"
        if call.reach is None:
            return "wants terms that are constant beyond a distance or of low rank, and no window; take None"
        if call.content and call.dtype == torch.bfloat16:
            return "takes terms by content in float32 or float64 alone; take None"
        if not hasattr(torch.ops.aten, OPERATORS.get(call.device.type, "")):
            return f"needs an operator for {call.device.type} that torch {torch.__version__} does not have; take None"
        if on_cpu:
            return None
        from wordorder.attention.backends.far_and_near.kernels import refusal_on_gpu

        return refusal_on_gpu(call)

    def at_home(self, call: Call) -> bool:
        if call.device.type != "cpu" or call.reach is None or not (call.content or call.bias != "none"):
            return False
        kind = 0 if call.reach == 0 else 2 if call.rank else 1
        slow = kind == 2 and not call.causal and "AVX512" not in torch.backends.cpu.get_cpu_capability()
        least = max(FEWEST_KEYS[call.dtype][kind], NARROW[call.dtype] * call.reach) * (1 + slow) * (2 - call.training)
        return call.keys >= least and call.queries * call.keys >= least**2

    def prepare(self, terms: Terms, mask: Mask | Tensor | None, call: Call) -> Any:
        from wordorder.attention.backends.far_and_near.regions import prepare

        return prepare(terms, mask, call)

    def attend(
        self,
        q_BHTD: Tensor,
        k_BHSD: Tensor,
        v_BHSE: Tensor,
        prepared: Any,
        added: Bias | None,
        *,
        scale: float,
        dropout: float,
        return_lse: bool,
    ) -> tuple[Tensor, Tensor | None]:
        from wordorder.attention.backends.far_and_near.passes import attend

        outside: Any = torch.compiler.disable(attend)  # pyright: ignore[reportUnknownMemberType]  # as of tiles
        return outside(q_BHTD, k_BHSD, v_BHSE, prepared, added, scale=scale, dropout=dropout, return_lse=return_lse)
