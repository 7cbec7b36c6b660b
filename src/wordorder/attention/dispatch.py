"""The one attention of the package."""

from typing import Literal, overload

from torch import Tensor

from wordorder.attention import reference, sdpa
from wordorder.attention.plan import Plan, choose_backend, make_plan
from wordorder.encodings import Order
from wordorder.ops import Visibility


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    order: Order | Plan | None = None,
    mask: Visibility | Tensor | None = None,
    *,
    dropout: float = 0.0,
    backend: str | None = None,
    return_lse: Literal[False] = False,
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    order: Order | Plan | None = None,
    mask: Visibility | Tensor | None = None,
    *,
    dropout: float = 0.0,
    backend: str | None = None,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    order: Order | Plan | None = None,
    mask: Visibility | Tensor | None = None,
    *,
    dropout: float = 0.0,
    backend: str | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """``softmax(scale * q.k + bias + content) v`` over the visible keys.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, Eq. 1, with the terms that an encoding adds. Scores and
    softmax are in at least float32. A query that sees no key has output 0, log-sum-exp -inf, and sends no gradient.

    Args:
        q: queries (B, H, T, D).
        k: keys (B, G, S, D); G divides H, each key head serves H / G query heads (grouped queries).
        v: values (B, G, S, E).
        order: what `Composition.prepare` returned; a `Plan` where bias and mask were already put together once for
            all layers (then ``mask`` and ``backend`` must be None); None for plain attention.
        mask: who sees whom; a `Visibility`, or a bool tensor that broadcasts to (B, H, T, S), True = visible.
        dropout: probability that a weight is dropped; pass 0 outside training.
        backend: "reference" or "sdpa"; None chooses.
        return_lse: also return the natural log of the sum of exponentials of each row of scores, (B, H, T), in at
            least float32; memories merge by it.

    Returns:
        Output (B, H, T, E) in the dtype of v; with ``return_lse`` the pair of output and log-sum-exp.

    Raises:
        ValueError: shapes do not fit, the mask is not boolean, or the backend cannot do what is asked.
    """
    _check_shapes(q, k, v)
    if isinstance(order, Plan):
        if mask is not None or backend is not None:
            raise ValueError("a Plan already holds mask and backend; pass mask=None and backend=None")
        plan = order
        choose_backend(return_lse=return_lse, return_weights=False, forced=plan.backend)
    else:
        chosen = choose_backend(return_lse=return_lse, return_weights=False, forced=backend)
        plain = Order(q.shape[-1] ** -0.5)
        plan = make_plan(order or plain, mask, backend=chosen, dtype=q.dtype, device=q.device)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    content = _content(q, k, plan)
    q, k = plan.order.rotate_queries(q), plan.order.rotate_keys(k)
    if plan.backend == "sdpa":
        return sdpa.attend(q, k, v, plan.order.scale, plan.mask_BHTS, content, dropout, plan.is_causal)
    output, lse = reference.attend(
        q, k, v, plan.order, plan.visible_B1TS, content_BHTS=content, dropout=dropout, return_lse=return_lse
    )
    return output if lse is None else (output, lse)


def attention_weights(q: Tensor, k: Tensor, plan: Plan) -> Tensor:
    """The weights that `attention` gives to values, (B, H, T, S) in the dtype of q; for looking at, and slow."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    content = _content(q, k, plan)
    turned = plan.order.rotate_queries(q), plan.order.rotate_keys(k)
    return reference.weights(reference.scores(*turned, plan.order, plan.visible_B1TS, content)).type_as(q)


def _content(q: Tensor, k: Tensor, plan: Plan) -> Tensor | None:
    """The sum of the terms by content, from queries and keys as they were before any rotation.

    A vector of a distance that met a rotated query would depend on the query's place, not on the distance alone.
    """
    total: Tensor | None = None
    for term in plan.order.content:
        scores = term.scores(q, k, plan.order.scale, plan.visible_B1TS)
        total = scores if total is None else total + scores
    return total


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    fits = q.dim() == k.dim() == v.dim() == 4 and k.shape[:3] == v.shape[:3] and q.shape[-1] == k.shape[-1]
    if not fits or q.shape[0] != k.shape[0] or q.shape[1] % k.shape[1]:
        raise ValueError(
            "q must be (B, H, T, D), k (B, G, S, D) and v (B, G, S, E) with G dividing H, got "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
