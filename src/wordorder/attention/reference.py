"""Attention as the equations say it, with every matrix written out: the specification of the faster backends."""

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.encodings import PositionTerms
from wordorder.ops.execution import no_autocast


def scores(
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    order: PositionTerms,
    visible_B1TS: Tensor | None,
    content_BHTS: Tensor | None = None,
) -> Tensor:
    """Return ``scale * q.k + bias + content``, -inf where hidden, in at least float32: (B, H, T, S).

    Queries and keys come rotated; the content term was computed from what they were before.
    """
    wide = torch.promote_types(q_BHTD.dtype, torch.float32)
    with no_autocast(q_BHTD.device):
        logits = (order.scale * q_BHTD.to(wide)) @ k_BHSD.to(wide).transpose(-1, -2)
    if order.bias is not None:
        logits = logits + order.bias.written_out(wide)
    if content_BHTS is not None:
        logits = logits + content_BHTS.to(wide)
    return logits if visible_B1TS is None else logits.masked_fill(~visible_B1TS, -torch.inf)


def weights(logits_BHTS: Tensor) -> Tensor:
    """Return the softmax over keys; a row that sees no key has weights 0, with gradient 0."""
    blind_BHT1 = (logits_BHTS == -torch.inf).all(-1, keepdim=True)
    return logits_BHTS.masked_fill(blind_BHT1, 0).softmax(-1).masked_fill(blind_BHT1, 0)


def attend(
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    v_BHSE: Tensor,
    order: PositionTerms,
    visible_B1TS: Tensor | None,
    *,
    content_BHTS: Tensor | None = None,
    dropout: float = 0.0,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the output (B, H, T, E) in the dtype of v, and each row's log-sum-exp of scores (B, H, T) if asked for.

    A row that sees nothing has output 0, log-sum-exp -inf, and sends no gradient.
    """
    logits = scores(q_BHTD, k_BHSD, order, visible_B1TS, content_BHTS)
    with no_autocast(logits.device):
        mixed = F.dropout(weights(logits), dropout) @ v_BHSE.to(logits.dtype)
    return mixed.type_as(v_BHSE), log_sum_exp(logits) if return_lse else None


def log_sum_exp(logits_BHTS: Tensor) -> Tensor:
    """Return the log-sum-exp over keys; -inf with gradient 0 where a row sees none (torch.logsumexp would send NaN)."""
    blind_BHT = (logits_BHTS == -torch.inf).all(-1)
    return logits_BHTS.masked_fill(blind_BHT[..., None], 0).logsumexp(-1).masked_fill(blind_BHT, -torch.inf)
