"""Exact attention with a bias that learns, tile by tile, for CPUs.

SDPA stores B * H * T * S numbers several times over when the bias wants a gradient, because none of its fused kernels
for CPUs gives one. Here a tile of scores (some heads, some rows) stays in the cache from the product q k' to its last
use, and the gradient of the bias is summed over the batch while it is there::

    forward    S = scale q k' + bias,  P = softmax(S),  o = P v,  lse = log sum exp S
    backward   dP = do v',  dS = P (dP - D),  D = rowsum(do o) - dlse
               dq = scale dS k,  dk = scale dS' q,  dv = P' do,  dbias = sum over examples of dS

Two ways to have P again in the backward pass: keep it (fastest up to about a thousand tokens), or compute it again from
lse (Dao et al. 2022, "FlashAttention", https://arxiv.org/abs/2205.14135, Algorithm 4), so that memory grows with T + S
instead of T * S. A `LowRankBias` or `ToeplitzBias` is built inside the tile, never as a whole.

Scores, the softmax, its gradient and every sum over tiles or examples are in at least float32; with 16-bit inputs the
products that give the gradients of q, k and v (and weights that are kept) are in 16 bits. Second derivatives are
refused.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from wordorder.attention.tiles.bias import Kind, as_tiles
from wordorder.attention.tiles.dropout import Dropout
from wordorder.attention.tiles.hidden import Hidden
from wordorder.attention.tiles.passes import Backward, How, Inputs, forward, forward_kept
from wordorder.encodings import Order
from wordorder.ops import Bias
from wordorder.ops.precision import no_autocast


def attend(
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    v_BHSE: Tensor,
    order: Order,
    hidden: Hidden,
    *,
    content: Bias | None = None,
    dropout: float = 0.0,
    keep: bool = False,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Output (B, H, T, E) in the dtype of v, and the log-sum-exp of each row (B, H, T) if asked for.

    Args:
        q_BHTD: queries, rotated.
        k_BHSD: keys, rotated.
        v_BHSE: values.
        order: the content scale and the bias.
        hidden: who does not see whom.
        content: the terms by content of this layer, already scaled.
        dropout: probability that a weight is dropped, to the nearest 1/65,536; weights that stay are divided by the
            share that stays. Drawn from torch's CPU generator, so that ``torch.manual_seed`` repeats it.
        keep: whether the weights are kept for the backward pass (B * H * T * S numbers) or computed again.
        return_lse: also return the log-sum-exp, natural log, in at least float32; it can be differentiated.

    Raises:
        RuntimeError: second derivatives are asked for.
        ValueError: the bias or the mask is of other sizes.
    """
    (batch, heads, queries, _), keys = q_BHTD.shape, k_BHSD.shape[2]
    wide = torch.promote_types(q_BHTD.dtype, torch.float32)
    if (hidden.batch, hidden.queries, hidden.keys) != (batch, queries, keys):
        raise ValueError(
            f"the plan was made for {hidden.batch} examples, {hidden.queries} queries and {hidden.keys} keys, got "
            f"{batch}, {queries} and {keys}; make one for this call"
        )
    kinds: list[Kind] = []
    tensors: list[Tensor] = []
    biases = [bias for bias in (order.bias, content) if bias is not None]
    for bias in biases:
        its_kinds, its_tensors = as_tiles(bias, batch=batch, heads=heads, queries=queries, keys=keys)
        kinds, tensors = [*kinds, *its_kinds], [*tensors, *its_tensors]
    how = How(
        scale=order.scale,
        kinds=tuple(kinds),
        hidden=hidden,
        may_be_blind=hidden.hides or any(bias.may_hide for bias in biases),
        dropout=Dropout(dropout, batch=batch, queries=queries, keys=keys),
        keep=keep,
        return_lse=return_lse,
    )
    apply = cast("Any", _Attention).apply
    output, lse = apply(how, q_BHTD, k_BHSD, v_BHSE, *(tensor.to(wide) for tensor in tensors))
    return output, lse if return_lse else None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: How, q: Tensor, k: Tensor, v: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        trained = any(ctx.needs_input_grad)
        keep = how.keep and trained
        inputs, kept = Inputs(q, k, v), None
        with no_autocast(q.device):
            if keep:
                output, lse, kept = forward_kept(how, inputs, tensors, need_lse=how.return_lse)
            else:
                output, lse = forward(how, inputs, tensors)
        exact, output = output, output.to(inputs.narrow)
        ctx.how = how
        ctx.save_for_backward(q, k, v, exact, lse if kept is None else kept, *tensors)
        returned = lse[..., 0]
        if not how.return_lse:  # (of kept weights it was not even computed)
            ctx.mark_non_differentiable(returned)
        return output, returned

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "tiled attention gives no second derivatives (create_graph=True); take backend='reference' or 'sdpa', "
                "or set WORDORDER_BACKEND=reference"
            )
        how: How = ctx.how
        q, k, v, output, kept_or_lse, *tensors = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        inputs, (up, up_lse) = Inputs(q, k, v), upstream
        up = torch.zeros_like(output, dtype=inputs.narrow) if up is None else up
        with no_autocast(q.device):
            # (16-bit weights that were kept give their own row sums)
            rounded = how.keep and inputs.narrow != inputs.wide
            delta = torch.zeros_like(up[..., :1], dtype=inputs.wide) if rounded else _row_sums(up, output, inputs.wide)
            if up_lse is not None:
                delta -= up_lse[..., None].to(inputs.wide)
            lse = None
            if not how.keep:  # a row that sees nothing weighs nothing: exp(-inf - inf) = 0
                lse = kept_or_lse.masked_fill(kept_or_lse == -torch.inf, torch.inf)
            gradients = Backward(
                how,
                inputs,
                tensors,
                kept=kept_or_lse if how.keep else None,
                lse=lse,
                delta=delta,
                up=up * how.dropout.rescale if how.dropout else up,
                wanted=_wanted_terms(how.kinds, ctx.needs_input_grad[4:]),
            ).run()
        return None, *gradients


def _row_sums(up_BHTE: Tensor, output_BHTE: Tensor, wide: torch.dtype) -> Tensor:
    """``rowsum(do o)``, (B, H, T, 1); head by head, which spares a tensor as large as the output."""
    heads = range(output_BHTE.shape[1])
    sums = [(up_BHTE[:, head].to(wide) * output_BHTE[:, head].to(wide)).sum(-1, keepdim=True) for head in heads]
    return torch.stack(sums, dim=1)


def _wanted_terms(kinds: Sequence[Kind], wanted: Sequence[bool]) -> list[bool]:
    """Per term whether one of its tensors wants a gradient."""
    rest = iter(wanted)
    return [any([next(rest) for _ in range(kind.tensors)]) for kind in kinds]
