"""Attention on torch's scaled_dot_product_attention, with bias and mask in one additive matrix."""

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.encodings import PositionTerms
from wordorder.ops.execution import no_autocast


def additive_mask(order: PositionTerms, visible_B1TS: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return bias and mask as SDPA takes them: None, a bool mask, or numbers with -inf where hidden.

    Numbers in ``dtype`` (B or 1, H, T, S): one matrix for all examples unless the mask has one per example.
    """
    if order.bias is None:
        return visible_B1TS
    bias_BHTS = order.bias.written_out(dtype)
    if not torch.is_grad_enabled():
        bias_BHTS = bias_BHTS.detach()  # a mask that wants a gradient keeps torch off its fused kernels even so
    return bias_BHTS if visible_B1TS is None else bias_BHTS.masked_fill(~visible_B1TS, -torch.inf)


def attend(
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    v_BHSE: Tensor,
    scale: float,
    mask_BHTS: Tensor | None,
    content_BHTS: Tensor | None,
    dropout: float,
    is_causal: bool,
) -> Tensor:
    """Return the attention output (B, H, T, E) of rotated queries and keys; the mask is that of `additive_mask`."""
    if content_BHTS is not None:
        if mask_BHTS is None:
            mask_BHTS = content_BHTS
        elif mask_BHTS.dtype == torch.bool:
            mask_BHTS = content_BHTS.masked_fill(~mask_BHTS, -torch.inf)
        else:
            mask_BHTS = mask_BHTS + content_BHTS
    if mask_BHTS is not None and mask_BHTS.dtype != torch.bool:
        mask_BHTS = mask_BHTS.to(q_BHTD.dtype)
    with no_autocast(q_BHTD.device):  # which would change the dtype that the caller has chosen
        return F.scaled_dot_product_attention(
            q_BHTD, k_BHSD, v_BHSE, attn_mask=mask_BHTS, dropout_p=dropout, is_causal=is_causal, scale=scale
        )
