"""Attention by Triton kernels as operators of torch, which torch.compile and torch.export leave whole."""

# torch's custom operators are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownArgumentType=false

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention.backends.triton import launch
from wordorder.attention.backends.triton.configurations import blocks, target_of
from wordorder.attention.backends.triton.launch import Inputs, Upstream
from wordorder.attention.backends.triton.operands import KernelBias, KernelMask, padded_rank


def attend(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSE: Tensor,
    scale: float,
    bias: KernelBias,
    mask: KernelMask,
    *,
    dropout: float = 0.0,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the output (B, H, T, E), and with ``return_lse`` the natural log-sum-exp of each row (B, H, T).

    Sums are in float32; with 16-bit inputs the factors of a low-rank bias are read in 16 bits. Dropout is drawn from
    torch's generator of the device, by Philox on query and key, so that the backward pass draws the same.
    """
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q_BHTD, k_BGSD, v_BGSE))
    batch, heads, queries, _ = q.shape
    bias = bias.fitted(batch, heads, queries, k.shape[2])
    seed = torch.randint(2**31, (1,), device=q.device) if dropout > 0 else None
    positions, ids = mask.positions or (None, None), mask.ids or (None, None)
    output, lse = attention_forward(
        q, k, v, bias.a_BHTR, bias.c_BHSR, bias.table_HW, bias.dense_BHTS,
        mask.tokens_BS, mask.bounds_B2, mask.shift_B, *positions, *ids, mask.visible_BHTS, seed,
        scale, mask.low, mask.high, dropout,
    )  # fmt: skip
    return output, lse if return_lse else None


CALL = """
    Tensor q, Tensor k, Tensor v, Tensor? a, Tensor? c, Tensor? table, Tensor? dense,
    Tensor? valid, Tensor? bounds, Tensor? shift, Tensor? q_positions, Tensor? k_positions, Tensor? q_ids,
    Tensor? k_ids, Tensor? visible, Tensor? seed, float scale, int? low, int? high, float dropout
"""
"""The arguments of a call, as both operators take them: those of `_inputs`."""
TENSORS = 16
"""The first of them are tensors, the others numbers."""


@torch.library.custom_op("wordorder::attention_forward", mutates_args=(), schema=f"({CALL}) -> (Tensor, Tensor)")
def attention_forward(*call: Any) -> tuple[Tensor, Tensor]:
    """Return output (B, H, T, E), laid out as (B, T, H, E), and log-sum-exp (B, H, T), float32."""
    inputs = _inputs(*call)
    o, lse = _outputs(inputs.q, inputs.v)
    if o.numel():
        launch.forward(inputs, o, lse, blocks("forward", inputs.shape)).run()
    return o, lse


@attention_forward.register_fake
def _forward_of_shapes(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return _outputs(q, v)


@torch.library.custom_op(
    "wordorder::attention_backward",
    mutates_args=(),
    schema=f"(Tensor? do, Tensor? dlse, Tensor o, Tensor lse, bool[] wanted, {CALL}) -> Tensor[]",
)
def attention_backward(
    do: Tensor | None, dlse: Tensor | None, o: Tensor, lse: Tensor, wanted: Sequence[bool], *call: Any
) -> list[Tensor]:
    """Return the gradients of q, k, v, and of both factors, the table and the dense part as far as they are wanted.

    ``wanted`` is of the factors, the table and the dense part; the gradient that is not wanted is an empty tensor.
    """
    inputs = _inputs(*call)
    (batch, heads, queries, keys), delta = inputs.sizes, torch.zeros_like(lse)
    dq, dk, dv, da, dc, dtable, ddense = gradients = _gradients(wanted, *call[:7])
    if inputs.q.numel() == 0:
        return [gradient.zero_() for gradient in gradients]
    do = torch.zeros_like(o) if do is None else do
    if do.stride() != o.stride():
        do = torch.empty_like(o).copy_(do)
    launch.row_sums(inputs, o, do, delta).run()
    if dlse is not None:  # where a row sees nothing it may be NaN
        delta -= dlse.masked_fill(lse == -torch.inf, 0)
    upstream = Upstream(do, lse, delta)
    # of each example, and where the order of the sums has to be the same in each run of each block of queries
    by_query, by_key = blocks("query_gradients", inputs.shape), blocks("key_gradients", inputs.shape)
    rows = -(-queries // by_query.rows) if torch.are_deterministic_algorithms_enabled() else 1
    table_BHMW = lse.new_zeros(batch, heads, rows, queries + keys - 1) if dtable.numel() else None
    a_BHTR, c_BHSR = (
        lse.new_empty(batch, heads, *gradient.shape[2:]) if gradient.numel() else None for gradient in (da, dc)
    )
    if a_BHTR is not None and inputs.shape.factors_apart:
        its_blocks = blocks("query_factors", inputs.shape), blocks("key_factors", inputs.shape)
        launch.query_gradients(inputs, upstream, dq, None, table_BHMW, by_query).run()
        launch.query_gradients(inputs, upstream, None, a_BHTR, None, its_blocks[0]).run()
        launch.key_gradients(inputs, upstream, dk, dv, None, by_key).run()
        launch.key_gradients(inputs, upstream, None, None, c_BHSR, its_blocks[1]).run()
    else:
        launch.query_gradients(inputs, upstream, dq, a_BHTR, table_BHMW, by_query).run()
        launch.key_gradients(inputs, upstream, dk, dv, c_BHSR, by_key).run()
    if ddense.numel():
        launch.dense_gradients(inputs, upstream, ddense, blocks("dense_gradients", inputs.shape)).run()
    if a_BHTR is not None and c_BHSR is not None:
        torch.sum(a_BHTR, 0, keepdim=True, out=da) if da.shape[0] == 1 else da.copy_(a_BHTR)
        torch.sum(c_BHSR, 0, keepdim=True, out=dc) if dc.shape[0] == 1 else dc.copy_(c_BHSR)
    if table_BHMW is not None:
        by_head_HW = table_BHMW.sum((0, 2))
        dtable.copy_(by_head_HW.sum(0, keepdim=True) if dtable.shape[0] == 1 else by_head_HW)
    return gradients


@attention_backward.register_fake
def _backward_of_shapes(
    do: Tensor, dlse: Tensor, o: Tensor, lse: Tensor, wanted: Sequence[bool], *call: Any
) -> list[Tensor]:
    del do, dlse, o, lse
    return _gradients(wanted, *call[:7])


def _refuse(ctx: Any, *gradients: Any) -> None:
    del ctx, gradients
    raise RuntimeError(
        "attention by Triton kernels gives no second derivatives (create_graph=True); take backend='reference', or"
        " set WORDORDER_BACKEND=reference"
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what the backward pass reads."""
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *inputs[:TENSORS])
    ctx.settings = inputs[TENSORS:]


def _backward(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the gradient of each input of the forward operator."""
    o, lse, *tensors = ctx.saved_tensors
    needed = ctx.needs_input_grad
    wanted = [needed[3] or needed[4], needed[5], needed[6]]
    gradients = attention_backward(do, dlse, o, lse, wanted, *tensors, *ctx.settings)
    asked = [gradient if need else None for gradient, need in zip(gradients, needed, strict=False)]
    return *asked, *[None] * (len(needed) - len(asked))


attention_forward.register_autograd(_backward, setup_context=_keep)
attention_backward.register_autograd(_refuse)


def _outputs(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return memory for output and log-sum-exp."""
    batch, heads, queries, _ = q.shape
    o = v.new_empty(batch, queries, heads, v.shape[-1]).transpose(1, 2)
    return o, q.new_empty(batch, heads, queries, dtype=torch.float32)


def _gradients(
    wanted: Sequence[bool],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor | None,
    c: Tensor | None,
    table: Tensor | None,
    dense: Tensor | None,
) -> list[Tensor]:
    """Return memory for the gradients; those of q, k and v laid out as (B, T, H, D), as a projection reads them."""
    made = [x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3]).transpose(1, 2) for x in (q, k, v)]
    factors, its_table, matrix = wanted
    for given, want in ((a, factors), (c, factors), (table, its_table), (dense, matrix)):
        made.append(q.new_empty(0) if given is None or not want else given.new_empty(given.shape))
    return made


def _inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor | None,
    c: Tensor | None,
    table: Tensor | None,
    dense: Tensor | None,
    valid: Tensor | None,
    bounds: Tensor | None,
    shift: Tensor | None,
    q_positions: Tensor | None,
    k_positions: Tensor | None,
    q_ids: Tensor | None,
    k_ids: Tensor | None,
    visible: Tensor | None,
    seed: Tensor | None,
    scale: float,
    low: int | None,
    high: int | None,
    dropout: float,
) -> Inputs:
    """Return the arguments of the operators, which are flat, as what they are."""
    mask = KernelMask(
        low,
        high,
        shift,
        None if q_positions is None or k_positions is None else (q_positions, k_positions),
        None if q_ids is None or k_ids is None else (q_ids, k_ids),
        valid,
        bounds,
        visible,
    )
    return Inputs(
        q=q, k=k, v=v, bias=KernelBias(a, c, table, dense), mask=mask, seed=seed, scale=scale, dropout=dropout,
        target=target_of(q.device),
    )  # fmt: skip


def self_test(device: torch.device) -> str | None:
    """Return what is wrong with a tiny call of every kernel on a device, output and gradients; None if nothing is.

    The dense part makes the gradients of the factors launches of their own, so that each kernel runs.
    """
    batch, heads, tokens, channels = 1, 2, 40, 16
    scale, rank = channels**-0.5, channels + 2

    def waves(step: float, *shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
        """Return numbers between -1 and 1 that draw nothing from a generator."""
        steps = torch.arange(math.prod(shape), device=device, dtype=torch.float32)
        return (step * steps).sin().view(shape).to(dtype).requires_grad_()

    q, k, v = (waves(step, batch, heads, tokens, channels) for step in (0.7, 1.1, 1.3))
    a, c = (waves(step, 1, heads, tokens, rank, dtype=torch.float32) for step in (0.9, 1.7))
    table = waves(0.3, heads, 2 * tokens - 1, dtype=torch.float32)
    dense = waves(1.9, 1, 1, tokens, tokens, dtype=torch.float32)
    upstream, leaves = waves(2.3, batch, heads, tokens, channels).detach(), [q, k, v, a, c, table, dense]

    index = torch.arange(tokens, device=device)
    distance = index - index[:, None]
    scores = scale * (q.float() @ k.float().mT) + a @ c.mT + table[:, distance + tokens - 1] + dense
    exact = scores.masked_fill(distance > 0, -torch.inf).softmax(-1) @ v.float()

    padded = sum(padded_rank(rank)) - rank
    bias = KernelBias(F.pad(a, (0, padded)), F.pad(c, (0, padded)), table, dense)
    output, _ = attend(q, k, v, scale, bias, KernelMask(high=0))
    names = (
        "the output",
        *(f"the gradient of {name}" for name in ("q", "k", "v", "a", "c", "the table", "the matrix")),
    )
    ours, slow = ((out.detach(), *torch.autograd.grad(out, leaves, upstream.to(out.dtype))) for out in (output, exact))
    for name, number, right in zip(names, ours, slow, strict=True):
        error = float((number.float() - right.float()).abs().max() / right.float().abs().max())
        if not error <= 1e-2:  # NaN too
            return f"{name} is off by {error:.1e} of its largest element"
    return None
