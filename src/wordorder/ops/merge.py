"""Merge two attentions over disjoint sets of keys into the attention over both."""

import torch
from torch import Tensor


def merge_read_outs(
    old: Tensor, old_lse: Tensor, new: Tensor, new_lse: Tensor, *, epsilon: float = 0.0, alpha: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the read-out over both sets of keys, its normaliser, and the weight of the old read-out.

    A softmax over two sets of keys is the mean of the softmaxes over each, weighted by their normalisers
    (Ji et al. 2022, "LaMemo", https://arxiv.org/abs/2204.07341, Eq. 8 and 9), here in the log domain::

        alpha = s_old / (s_old + s_new) = sigmoid(lse_old - lse_new),   s = exp(lse)
        read  = alpha old + (1 - alpha) new
        lse   = logaddexp(lse_old, lse_new)

    which cannot overflow, and is exact. A set without a key has lse -inf and weighs nothing; where both have none,
    alpha is 1. No gradient is NaN.

    The paper and its code have a small epsilon in the denominator. By default there is none here, since none is needed;
    for results equal to the code's, ``epsilon`` is added to the sum after both terms were divided by the larger of
    them, as there.

    Args:
        old: read-out over the first set, (..., E).
        old_lse: log-sum-exp of its scores, natural log, (...).
        new: read-out over the second set, (..., E).
        new_lse: log-sum-exp of its scores, (...).
        epsilon: see above; the reference code has 1e-6.
        alpha: the weight of the old read-out where both sets have keys, whatever the normalisers; None = as above.

    Returns:
        read-out (..., E), log-sum-exp (...) and alpha (...), in at least float32.
    """
    wide = torch.promote_types(old_lse.dtype, torch.float32)
    old_lse, new_lse = old_lse.to(wide), new_lse.to(wide)
    nothing_new = new_lse == -torch.inf
    only_new = (old_lse == -torch.inf) & ~nothing_new
    settled = nothing_new | only_new
    # -inf - -inf is NaN, and so would be its gradient
    apart = old_lse.masked_fill(settled, 0) - new_lse.masked_fill(settled, 0)
    if alpha is not None:
        weight = torch.full_like(apart, alpha)
    elif epsilon:
        a, b = apart.clamp(max=0).exp(), (-apart).clamp(max=0).exp()  # the larger of them is 1
        weight = a / (a + b + epsilon)
    else:
        weight = apart.sigmoid()
    weight = weight.masked_fill(nothing_new, 1).masked_fill(only_new, 0)
    read = torch.lerp(new.to(wide), old.to(wide), weight[..., None])
    sum_lse = torch.logaddexp(old_lse.masked_fill(settled, 0), new_lse.masked_fill(settled, 0))
    lse = torch.where(nothing_new, old_lse, torch.where(only_new, new_lse, sum_lse))
    return read, lse, weight
