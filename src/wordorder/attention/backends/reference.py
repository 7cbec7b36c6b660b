"""Attention as the equations say it, with every matrix written out: the specification of the faster backends."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention.backends.backend import Backend
from wordorder.attention.call import Call
from wordorder.encodings import Terms
from wordorder.ops import Bias, Mask
from wordorder.ops.execution import no_autocast


class WrittenOut(NamedTuple):
    """The bias, and the mask pair by pair."""

    bias: Bias | None
    mask_B1TS: Tensor | None
    """Bool, True = visible; None where nothing is hidden."""


class Reference(Backend):
    """Every matrix written out; attention weights, and the log-sum-exp where no other backend gives it."""

    name = "reference"

    def refusal(self, call: Call) -> str | None:
        del call

    def at_home(self, call: Call) -> bool:
        del call
        return True

    def prepare(self, terms: Terms, mask: Mask | Tensor | None, call: Call) -> WrittenOut:
        return WrittenOut(terms.bias, mask.dense(call.device) if isinstance(mask, Mask) else mask)

    def attend(
        self,
        q_BHTD: Tensor,
        k_BHSD: Tensor,
        v_BHSE: Tensor,
        prepared: WrittenOut,
        added: Bias | None,
        *,
        scale: float,
        dropout: float,
        return_lse: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention; a row that sees nothing has output 0, log-sum-exp -inf, and sends no gradient."""
        logits = self.scores(q_BHTD, k_BHSD, prepared, added, scale)
        with no_autocast(logits.device):
            mixed = F.dropout(weights(logits), dropout) @ v_BHSE.to(logits.dtype)
        return mixed.type_as(v_BHSE), log_sum_exp(logits) if return_lse else None

    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, prepared: WrittenOut, added: Bias | None, scale: float) -> Tensor:
        """Return ``scale * q.k + bias + added``, -inf where hidden, in at least float32: (B, H, T, S)."""
        wide = torch.promote_types(q_BHTD.dtype, torch.float32)
        with no_autocast(q_BHTD.device):
            logits = self.products(q_BHTD.to(wide), k_BHSD.to(wide), scale)
        for term in (prepared.bias, added):
            if term is not None:
                logits = logits + term.written_out(wide)
        return logits if prepared.mask_B1TS is None else logits.masked_fill(~prepared.mask_B1TS, -torch.inf)

    def products(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float) -> Tensor:
        """Return the scaled products of queries and keys."""
        return (scale * q_BHTD) @ k_BHSD.transpose(-1, -2)


def weights(logits_BHTS: Tensor) -> Tensor:
    """Return the softmax over keys; a row that sees no key has weights 0, with gradient 0."""
    blind_BHT1 = (logits_BHTS == -torch.inf).all(-1, keepdim=True)
    return logits_BHTS.masked_fill(blind_BHT1, 0).softmax(-1).masked_fill(blind_BHT1, 0)


def log_sum_exp(logits_BHTS: Tensor) -> Tensor:
    """Return the log-sum-exp over keys; -inf with gradient 0 where a row sees none (torch.logsumexp would send NaN)."""
    blind_BHT = (logits_BHTS == -torch.inf).all(-1)
    return logits_BHTS.masked_fill(blind_BHT[..., None], 0).logsumexp(-1).masked_fill(blind_BHT, -torch.inf)
