"""Exact attention with a learned bias for CPUs, computed tile by tile.

SDPA stores B * H * T * S numbers several times over when the bias wants a gradient, because none of its fused kernels
for CPUs gives one. Here a tile of scores (some heads, some rows) stays in the cache from the product q k' to its last
use, and the gradient of the bias is summed over the batch while it is there::

    forward    S = scale q k' + bias,  P = softmax(S),  o = P v,  lse = log sum exp S
    backward   dP = do v',  dS = P (dP - D),  D = rowsum(do o) - dlse
               dq = scale dS k,  dk = scale dS' q,  dv = P' do,  dbias = sum over examples of dS

P is needed again in the backward pass. Either keep it (fastest up to about a thousand tokens), or compute it again from
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
from wordorder.attention.tiles.mask import TileMask
from wordorder.attention.tiles.passes import Backward, Inputs, TileOptions, forward, forward_kept
from wordorder.encodings import PositionTerms
from wordorder.ops import Bias
from wordorder.ops.precision import no_autocast


def attend(
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    v_BHSE: Tensor,
    order: PositionTerms,
    tile_mask: TileMask,
    *,
    content: Bias | None = None,
    dropout: float = 0.0,
    keep: bool = False,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the output (B, H, T, E) in the dtype of v, and with ``return_lse`` the log-sum-exp of each row (B, H, T).

    Args:
        order: the content scale and the bias.
        content: the terms of this layer that depend on content, already scaled.
        dropout: probability that a weight is dropped, to the nearest 1/65,536; weights that stay are divided by the
            share that stays. Drawn from torch's CPU generator, so that ``torch.manual_seed`` repeats it.
        keep: whether the weights are kept for the backward pass (B * H * T * S numbers) or computed again.
        return_lse: also return the log-sum-exp, natural log, in at least float32; it can be differentiated.

    Raises:
        RuntimeError: from the backward pass with ``create_graph=True``; there are no second derivatives.
        ValueError: the bias or the mask has other sizes.
    """
    (batch, heads, queries, _), keys = q_BHTD.shape, k_BHSD.shape[2]
    accum_dtype = torch.promote_types(q_BHTD.dtype, torch.float32)
    if (tile_mask.batch, tile_mask.queries, tile_mask.keys) != (batch, queries, keys):
        raise ValueError(
            f"the plan was made for {tile_mask.batch} examples, {tile_mask.queries} queries and {tile_mask.keys} keys,"
            f" got {batch}, {queries} and {keys}; make one for this call"
        )
    kinds: list[Kind] = []
    tensors: list[Tensor] = []
    biases = [bias for bias in (order.bias, content) if bias is not None]
    for bias in biases:
        its_kinds, its_tensors = as_tiles(bias, batch=batch, heads=heads, queries=queries, keys=keys)
        kinds, tensors = [*kinds, *its_kinds], [*tensors, *its_tensors]
    options = TileOptions(
        scale=order.scale,
        kinds=tuple(kinds),
        tile_mask=tile_mask,
        rows_may_be_fully_masked=tile_mask.hides or any(bias.may_hide for bias in biases),
        dropout=Dropout(dropout, batch=batch, queries=queries, keys=keys),
        keep=keep,
        return_lse=return_lse,
    )
    apply = cast("Any", _Attention).apply
    output, lse = apply(options, q_BHTD, k_BHSD, v_BHSE, *(tensor.to(accum_dtype) for tensor in tensors))
    return output, lse if return_lse else None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, options: TileOptions, q: Tensor, k: Tensor, v: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        trained = any(ctx.needs_input_grad)
        keep = options.keep and trained
        inputs, kept = Inputs(q, k, v), None
        with no_autocast(q.device):
            if keep:
                output, lse, kept = forward_kept(options, inputs, tensors, need_lse=options.return_lse)
            else:
                output, lse = forward(options, inputs, tensors)
        exact, output = output, output.to(inputs.input_dtype)
        ctx.options = options
        ctx.save_for_backward(q, k, v, exact, lse if kept is None else kept, *tensors)
        returned = lse[..., 0]
        if not options.return_lse:  # (with kept weights it was not even computed)
            ctx.mark_non_differentiable(returned)
        return output, returned

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "tiled attention gives no second derivatives (create_graph=True); take backend='reference' or 'sdpa', "
                "or set WORDORDER_BACKEND=reference"
            )
        options: TileOptions = ctx.options
        q, k, v, output, kept_or_lse, *tensors = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        inputs, (grad_output, grad_lse) = Inputs(q, k, v), grad_outputs
        input_dtype, accum_dtype = inputs.input_dtype, inputs.accum_dtype
        if grad_output is None:
            grad_output = torch.zeros_like(output, dtype=input_dtype)
        with no_autocast(q.device):
            # (with 16-bit kept weights the row sums are taken of these weights, in Backward)
            if options.keep and input_dtype != accum_dtype:
                delta = torch.zeros_like(grad_output[..., :1], dtype=accum_dtype)
            else:
                delta = _row_sums(grad_output, output, accum_dtype)
            if grad_lse is not None:
                delta -= grad_lse[..., None].to(accum_dtype)
            lse = None
            if not options.keep:  # a fully masked row has weights exp(-inf - inf) = 0
                lse = kept_or_lse.masked_fill(kept_or_lse == -torch.inf, torch.inf)
            gradients = Backward(
                options,
                inputs,
                tensors,
                kept=kept_or_lse if options.keep else None,
                lse=lse,
                delta=delta,
                grad_output=grad_output * options.dropout.rescale if options.dropout else grad_output,
                wanted=_wanted_terms(options.kinds, ctx.needs_input_grad[4:]),
            ).run()
        return None, *gradients


def _row_sums(grad_output_BHTE: Tensor, output_BHTE: Tensor, accum_dtype: torch.dtype) -> Tensor:
    """Return ``rowsum(do o)``, (B, H, T, 1), head by head, without a temporary tensor as large as the output."""
    sums = [
        (grad_output_BHTE[:, head].to(accum_dtype) * output_BHTE[:, head].to(accum_dtype)).sum(-1, keepdim=True)
        for head in range(output_BHTE.shape[1])
    ]
    return torch.stack(sums, dim=1)


def _wanted_terms(kinds: Sequence[Kind], wanted: Sequence[bool]) -> list[bool]:
    """Tell for each term whether one of its tensors needs a gradient."""
    rest = iter(wanted)
    return [any([next(rest) for _ in range(kind.tensors)]) for kind in kinds]
