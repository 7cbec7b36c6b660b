"""A backend in one file: attention one query at a time, without a matrix of queries x keys."""

import torch
from torch import Tensor

from wordorder.attention import Backend, Call
from wordorder.attention.backends.reference import log_sum_exp, weights
from wordorder.encodings import Terms
from wordorder.ops import Bias, Mask


class RowByRow(Backend):
    """Compute softmax(scale q.k + bias) v for each query by itself."""

    name = "row-by-row"

    def refusal(self, call: Call) -> str | None:
        return "has no dropout; take backend=None" if call.dropout else None

    def at_home(self, call: Call) -> bool:
        del call
        return False  # taken only where it is asked for by name

    def prepare(self, terms: Terms, mask: Mask | Tensor | None, call: Call) -> tuple[Bias | None, Tensor | None]:
        return terms.bias, mask.dense(call.device) if isinstance(mask, Mask) else mask

    def attend(self, q_BHTD, k_BHSD, v_BHSE, prepared, added, *, scale, dropout, return_lse):
        del dropout
        (bias, mask_B1TS), wide = prepared, torch.promote_types(q_BHTD.dtype, torch.float32)
        summands = [term.written_out(wide) for term in (bias, added) if term is not None]
        outputs, sums = [], []
        for i in range(q_BHTD.shape[2]):
            scores_BHS = scale * (q_BHTD[:, :, i, None].to(wide) * k_BHSD.to(wide)).sum(-1)
            for term_BHTS in summands:
                scores_BHS = scores_BHS + term_BHTS[:, :, min(i, term_BHTS.shape[2] - 1)]
            if mask_B1TS is not None:
                scores_BHS = scores_BHS.masked_fill(~mask_B1TS[:, :, min(i, mask_B1TS.shape[2] - 1)], -torch.inf)
            sums.append(log_sum_exp(scores_BHS))  # -inf, with gradient 0, for a query that sees nothing
            outputs.append((weights(scores_BHS)[..., None] * v_BHSE.to(wide)).sum(2))
        return torch.stack(outputs, 2).type_as(v_BHSE), torch.stack(sums, 2) if return_lse else None
