"""Attention on torch's scaled_dot_product_attention, with bias and mask in one additive matrix."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention.backends.backend import Backend
from wordorder.attention.call import Call
from wordorder.encodings import Terms
from wordorder.ops import Bias, Mask
from wordorder.ops.execution import no_autocast


class Additive(NamedTuple):
    """Bias and mask as SDPA takes them."""

    mask_BHTS: Tensor | None
    """None, a bool mask (True = visible), or numbers with -inf where hidden, (B or 1, H, T, S): one matrix for all
    examples unless the mask has one per example."""
    is_causal: bool
    """The mask is the lower triangle, which SDPA knows by name."""


class Sdpa(Backend):
    """Everything that torch's fused kernels can do, small calls, and on a CPU everything that is traced."""

    name = "sdpa"

    def refusal(self, call: Call) -> str | None:
        if not (call.return_lse or call.return_weights):
            return None
        result = "the log-sum-exp" if call.return_lse else "attention weights"
        return f"does not return {result}; take backend='reference' or None"

    def at_home(self, call: Call) -> bool:
        # its kernel on a CPU has neither a derivative by the mask nor tangents
        return not (call.transformed and call.device.type == "cpu")

    def prepare(self, terms: Terms, mask: Mask | Tensor | None, call: Call) -> Additive:
        is_plain = terms.bias is None and len(terms.content) == 0  # a tracer knows no "not" of a tuple
        if is_plain and isinstance(mask, Mask) and mask.is_plain_causal:
            return Additive(None, is_causal=True)
        visible_B1TS = mask.dense(call.device) if isinstance(mask, Mask) else mask
        if terms.bias is None:
            return Additive(visible_B1TS, is_causal=False)
        bias_BHTS = terms.bias.written_out(call.dtype)
        if not torch.is_grad_enabled():
            bias_BHTS = bias_BHTS.detach()  # a mask that wants a gradient keeps torch off its fused kernels even so
        if visible_B1TS is not None:
            bias_BHTS = bias_BHTS.masked_fill(~visible_B1TS, -torch.inf)
        return Additive(bias_BHTS, is_causal=False)

    def attend(
        self,
        q_BHTD: Tensor,
        k_BHSD: Tensor,
        v_BHSE: Tensor,
        prepared: Additive,
        added: Bias | None,
        *,
        scale: float,
        dropout: float,
        return_lse: bool,
    ) -> tuple[Tensor, Tensor | None]:
        del return_lse
        mask_BHTS = prepared.mask_BHTS
        if added is not None:
            added_BHTS = added.written_out(q_BHTD.dtype)
            if mask_BHTS is None:
                mask_BHTS = added_BHTS
            elif mask_BHTS.dtype == torch.bool:
                mask_BHTS = added_BHTS.masked_fill(~mask_BHTS, -torch.inf)
            else:
                mask_BHTS = mask_BHTS + added_BHTS
        if mask_BHTS is not None and mask_BHTS.dtype != torch.bool:
            mask_BHTS = mask_BHTS.to(q_BHTD.dtype)
        is_causal, channels = prepared.is_causal, v_BHSE.shape[-1]
        narrower = q_BHTD.shape[-1] - channels
        if narrower > 0 and q_BHTD.device.type == "cpu":  # whose fused kernel takes heads of one width alone
            v_BHSE = F.pad(v_BHSE, (0, narrower))
        with no_autocast(q_BHTD.device):  # which would change the dtype that the caller has chosen
            mixed_BHTE = F.scaled_dot_product_attention(
                q_BHTD, k_BHSD, v_BHSE, attn_mask=mask_BHTS, dropout_p=dropout, is_causal=is_causal, scale=scale
            )
        return mixed_BHTE[..., :channels], None
