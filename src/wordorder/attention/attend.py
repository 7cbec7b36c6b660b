"""Attention: the public function with its checks, and `attend`, which computes by a plan."""

from typing import Any, Literal, cast, overload

import torch
from torch import Tensor

from wordorder.attention import flex, reference, sdpa, tiles
from wordorder.attention.accept import as_mask, as_order
from wordorder.attention.plan import AttentionSizes, Plan, check_plan, plan_attention
from wordorder.encodings import Composition, Encoding, PositionTerms
from wordorder.ops import Bias, Visibility


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    order: PositionTerms | Plan | Composition | Encoding | Bias | None = None,
    mask: Visibility | Tensor | None = None,
    *,
    is_causal: bool = False,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    backend: str | None = None,
    return_lse: Literal[False] = False,
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    order: PositionTerms | Plan | Composition | Encoding | Bias | None = None,
    mask: Visibility | Tensor | None = None,
    *,
    is_causal: bool = False,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    backend: str | None = None,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    order: PositionTerms | Plan | Composition | Encoding | Bias | None = None,
    mask: Visibility | Tensor | None = None,
    *,
    is_causal: bool = False,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    backend: str | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute ``softmax(scale * q.k + bias + content) v`` over the visible keys.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, Eq. 1, with the terms that an encoding adds. Scores and
    softmax are in at least float32. A query that sees no key has output 0, log-sum-exp -inf, and sends no gradient.

    Args:
        q: queries (B, H, T, D).
        k: keys (B, G, S, D); G divides H, each key head serves H / G query heads (grouped queries).
        v: values (B, G, S, E).
        order: what `Composition.prepare` returned, which several layers may share; an encoding or a bias itself, for
            queries and keys at 0 .. T - 1; a `Plan` where bias and mask were already put together once for all layers
            (then ``mask`` and ``backend`` must be None); None for plain attention.
        mask: who sees whom; a `Visibility`, or a bool tensor that broadcasts to (B, H, T, S), True = visible.
        is_causal: a query sees the keys at its own position and before it; in place of ``mask``.
        key_padding_mask: bool (B, S), True = padding, as in `torch.nn.MultiheadAttention`; in place of ``mask``.
        dropout: probability that a weight is dropped; pass 0 outside training.
        backend: one of those that `choose_backend` lists; None lets it choose (or the environment variable
            ``WORDORDER_BACKEND``).
        return_lse: also return the natural log of the sum of exponentials of each row of scores, (B, H, T), in at
            least float32; memories merge by it.

    Returns:
        Output (B, H, T, E) in the dtype of v; with ``return_lse`` the pair of output and log-sum-exp.

    Raises:
        ValueError: shapes do not fit, a mask is not boolean, dropout is out of range, or the backend cannot do what
            is asked; attention is only a part of what the encoding does (see `wordorder.Positional`); or a causal mask
            meets an encoding that was built for both sides.
        RuntimeError: second derivatives of tiles are asked for.
    """
    _check_shapes(q, k, v)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
    order = as_order(order, q, k)
    mask = as_mask(order, mask, q, k, is_causal=is_causal, key_padding_mask=key_padding_mask)
    sizes = AttentionSizes.of(q, k)
    if isinstance(order, Plan):
        if mask is not None or backend is not None:
            raise ValueError("a Plan already holds mask and backend; pass mask=None and backend=None")
        check_plan(order, sizes, dropout=dropout, return_lse=return_lse)
        plan = order
    else:
        order = order or PositionTerms(q.shape[-1] ** -0.5)
        plan = plan_attention(order, mask, sizes, backend=backend, dropout=dropout, return_lse=return_lse)
    assert isinstance(plan, Plan)  # as_order let nothing pass that differs by layer
    output, lse = attend(q, k, v, plan, dropout=dropout, return_lse=return_lse)
    return output if lse is None else (output, lse)


def attend(
    q: Tensor, k: Tensor, v: Tensor, plan: Plan, *, dropout: float = 0.0, return_lse: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return the output (B, H, T, E), and the log-sum-exp (B, H, T) if asked for, by a plan made for these sizes.

    Nothing is checked: `attention` does that, and `plan_attention`.

    Args:
        plan: order and mask, as one layer sees them.
        return_lse: the plan must have been made for it.
    """
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    shift, content = _content(q, k, plan)
    q, k = plan.order.rotate_queries(q if shift is None else q + shift), plan.order.rotate_keys(k)
    if plan.backend == "sdpa":
        added = None if content is None else content.written_out(q.dtype)
        return sdpa.attend(q, k, v, plan.order.scale, plan.mask_BHTS, added, dropout, plan.is_causal), None
    if plan.backend == "flex":
        return flex.attend(q, k, v, plan.order, plan.mask), None
    if plan.backend == "reference":
        added = None if content is None else content.written_out(torch.promote_types(q.dtype, torch.float32))
        return reference.attend(
            q, k, v, plan.order, plan.visible_B1TS, content_BHTS=added, dropout=dropout, return_lse=return_lse
        )
    assert plan.tile_mask is not None
    keep = plan.backend == "kept-tiles"
    # the loops over tiles are not for a tracer: a layer that is compiled alone breaks its graph here
    outside = cast("Any", torch).compiler.disable(tiles.attend)
    return outside(
        q, k, v, plan.order, plan.tile_mask, content=content, dropout=dropout, keep=keep, return_lse=return_lse
    )


def attention_weights(q: Tensor, k: Tensor, plan: Plan) -> Tensor:
    """Return the weights that `attention` gives to values, (B, H, T, S) in the dtype of q; slow, for inspection."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    shift, content = _content(q, k, plan)
    turned = plan.order.rotate_queries(q if shift is None else q + shift), plan.order.rotate_keys(k)
    added = None if content is None else content.written_out(torch.promote_types(q.dtype, torch.float32))
    return reference.weights(reference.scores(*turned, plan.order, plan.visible_B1TS, added)).type_as(q)


def _content(q: Tensor, k: Tensor, plan: Plan) -> tuple[Tensor | None, Bias | None]:
    """Return the shift of the queries and the bias that content terms give, from queries and keys before any rotation.

    A vector of a distance that met a rotated query would depend on the query's place, not on the distance alone.
    """
    shift: Tensor | None = None
    total: Bias | None = None
    order = plan.order
    visible = plan.visible_B1TS if plan.mask is None else plan.mask
    for term in order.content:
        vector, bias = term.as_bias(q, k, order.scale, visible, rotated=order.moves)
        if vector is not None:
            shift = vector if shift is None else shift + vector
        total = bias if total is None else total + bias
    return (None if shift is None else shift.type_as(q)), total


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    fits = q.dim() == k.dim() == v.dim() == 4 and k.shape[:3] == v.shape[:3] and q.shape[-1] == k.shape[-1]
    if not fits or q.shape[0] != k.shape[0] or q.shape[1] % k.shape[1]:
        raise ValueError(
            "q must be (B, H, T, D), k (B, G, S, D) and v (B, G, S, E) with G dividing H, got "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v must be of one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
