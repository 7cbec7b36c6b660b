"""Attention: the public function, what it accepts, and `attend`, which computes by a plan."""

from typing import Literal, TypedDict, Unpack, overload

from torch import Tensor

from wordorder.attention.backends.backend import Backend
from wordorder.attention.backends.reference import Reference, log_sum_exp, weights
from wordorder.attention.call import Call
from wordorder.attention.plan import Plan, plan_attention
from wordorder.encodings import (
    Composition,
    Encoding,
    LayerTerms,
    OnEmbeddings,
    OnLayerInput,
    ReplacesEmbedding,
    Terms,
    TokenFeatures,
)
from wordorder.encodings.places import NO_FEATURES
from wordorder.errors import BadInput
from wordorder.ops import Bias, Contiguous, Mask, valid_tokens
from wordorder.ops.execution import as_autocast_casts

AnyTerms = Terms | LayerTerms | Composition | Encoding | Bias


class _Options(TypedDict, total=False):
    is_causal: bool
    key_padding_mask: Tensor | None
    dropout: float
    backend: str | Backend | None


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: AnyTerms | None = None,
    mask: Mask | Tensor | None = None,
    *,
    return_lse: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: AnyTerms | None = None,
    mask: Mask | Tensor | None = None,
    *,
    return_lse: Literal[True],
    **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: AnyTerms | None = None,
    mask: Mask | Tensor | None = None,
    *,
    is_causal: bool = False,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    backend: str | Backend | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute ``softmax(scale * q.k + bias + content) v`` over the visible keys.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, Eq. 1, with the terms that an encoding adds. Scores and
    softmax are in at least float32. A query that sees no key has output 0, log-sum-exp -inf, and sends no gradient.

    Args:
        q: queries (B, H, T, D).
        k: keys (B, G, S, D); G divides H, each key head serves H / G query heads (grouped queries).
        v: values (B, G, S, E).
        terms: what `Composition.prepare` returned, which several layers may share; an encoding or a bias itself, for
            queries and keys at 0 .. T - 1; None for plain attention.
        mask: who sees whom; a `Mask`, or a bool tensor that broadcasts to (B, H, T, S), True = visible.
        is_causal: a query sees the keys at its own position and before it; in place of ``mask``.
        key_padding_mask: bool (B, S), True = padding, as in `torch.nn.MultiheadAttention`; in place of ``mask``.
        dropout: probability that a weight is dropped; pass 0 outside training.
        backend: one of `BACKENDS` by name, or a `Backend` of your own; None lets `choose_backend` choose (or the
            environment variable ``WORDORDER_BACKEND``).
        return_lse: also return the natural log of the sum of exponentials of each row of scores, (B, H, T), in at
            least float32; memories merge by it.

    Returns:
        Output (B, H, T, E) in the dtype of v; with ``return_lse`` the pair of output and log-sum-exp.

    Raises:
        ValueError: shapes do not fit, a mask is not boolean, dropout is out of range, or the backend cannot do what
            is asked; attention is only a part of what the encoding does (see `wordorder.Positional`); or a causal mask
            meets an encoding that was built for both sides.
        RuntimeError: second derivatives are asked for, which only ``backend="reference"`` has.
    """
    if not q.dtype == k.dtype == v.dtype:  # a norm on q and k gives float32 under autocast
        q, k, v = as_autocast_casts(q, k, v)
    _check_shapes(q, k, v)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
    of_layer = _as_terms(terms, q, k)
    _check_head_dim(of_layer.head_dim, q)
    mask = _as_mask(of_layer, mask, q, k, is_causal=is_causal, key_padding_mask=key_padding_mask)
    call = Call.of(q, k, v, dropout=dropout, return_lse=return_lse)
    plan = plan_attention(of_layer, mask, call, backend=backend)
    output, lse = attend(q, k, v, plan, dropout=dropout, return_lse=return_lse)
    return output if lse is None else (output, lse)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: Plan,
    features: TokenFeatures = NO_FEATURES,
    *,
    dropout: float = 0.0,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the output (B, H, T, E), and the log-sum-exp (B, H, T) if asked for, by a plan made for these sizes.

    ``features`` are those of `Terms.features`, of these queries and of all keys. Nothing is checked: `attention` does
    that, and `plan_attention`.
    """
    terms, groups = plan.terms, q.shape[1] // k.shape[1]
    if groups > 1 and (len(terms.content) > 0 or not plan.backend.grouped):
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    q, k, added = _moved(q, k, plan, features)
    with_lse = return_lse or len(terms.sinks) > 0
    mixed, lse = plan.backend.attend(
        q, k, v, plan.prepared, added, scale=terms.scale, dropout=dropout, return_lse=with_lse
    )
    for sink in terms.sinks:
        assert lse is not None
        mixed, lse = sink.apply(mixed, lse)
    return mixed, lse if return_lse else None


def attention_weights(q: Tensor, k: Tensor, plan: Plan, features: TokenFeatures = NO_FEATURES) -> Tensor:
    """Return the weights that `attention` gives to values, (B, H, T, S) in the dtype of q; slow, for inspection."""
    q, k, added = _moved(q, k.repeat_interleave(q.shape[1] // k.shape[1], dim=1), plan, features)
    if isinstance(plan.backend, Reference):
        reference, prepared = plan.backend, plan.prepared
    else:
        reference = Reference()
        prepared = reference.prepare(plan.terms, plan.mask, plan.call)
    scores_BHTS = reference.scores(q, k, prepared, added, plan.terms.scale)
    weights_BHTS, lse_BHT = weights(scores_BHTS), None
    for sink in plan.terms.sinks:
        lse_BHT = log_sum_exp(scores_BHTS) if lse_BHT is None else lse_BHT
        weights_BHTS, lse_BHT = sink.apply(weights_BHTS, lse_BHT)
    return weights_BHTS.type_as(q)


def _moved(q: Tensor, k: Tensor, plan: Plan, features: TokenFeatures) -> tuple[Tensor, Tensor, Bias | None]:
    """Return queries and keys after all moves, and the bias of content terms, which read them before any rotation.

    A vector of a distance that met a rotated query would depend on the query's place, not on the distance alone; and to
    scores that are not linear it cannot be added by the query.
    """
    terms, shift, total = plan.terms, None, None
    for term in terms.content:
        if features.of_queries or features.of_keys:
            term = term.with_features(features, terms.positions)
        vector, bias = term.as_bias(q, k, terms.scale, plan.mask, rotated=terms.moves or not plan.backend.linear)
        if vector is not None:
            shift = vector if shift is None else shift + vector
        total = bias if total is None else total + bias
    return terms.move_queries(q if shift is None else q + shift.type_as(q)), terms.move_keys(k), total


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    fits = q.dim() == k.dim() == v.dim() == 4 and k.shape[:3] == v.shape[:3] and q.shape[-1] == k.shape[-1]
    if not fits or q.shape[0] != k.shape[0] or q.shape[1] % k.shape[1]:
        raise ValueError(
            "q must be (B, H, T, D), k (B, G, S, D) and v (B, G, S, E) with G dividing H, got "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v must be of one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")


def _check_head_dim(built_for: int | None, q: Tensor) -> None:
    if built_for not in (None, q.shape[-1]):
        raise BadInput(f"this encoding is for heads of {built_for} channels, got q of {q.shape[-1]}")


_POSITIONAL = "use wordorder.Positional, which does all of it"


def _as_terms(terms: object, q: Tensor, k: Tensor) -> Terms:
    """Return the terms of an encoding or a bias, for queries at 0 .. T - 1 and keys at 0 .. S - 1."""
    if isinstance(terms, Terms):
        if terms.reads_layer_input:
            raise BadInput(f"this encoding reads the input of each layer, which attention does not have: {_POSITIONAL}")
        return terms
    if isinstance(terms, LayerTerms):
        first, *others = terms.kinds
        if others or first.by_layer:
            raise BadInput("these terms differ by layer: pass terms.layer(index), with the layer's index from 0")
        return first
    if terms is None or isinstance(terms, Bias):
        return Terms(q.shape[-1] ** -0.5, terms)
    if isinstance(terms, Encoding):
        _check_head_dim(getattr(terms, "head_dim", None), q)
        heads = getattr(terms, "heads", q.shape[1])
        if heads != q.shape[1]:
            raise BadInput(f"this {type(terms).__name__} is for {heads} heads, got q of {q.shape[1]}")
        terms = Composition({"encoding": terms}, head_dim=q.shape[-1])
    if not isinstance(terms, Composition):
        raise BadInput(
            "terms must be what Composition.prepare(...) returned, an encoding or a bias, got"
            f" {terms if isinstance(terms, str) else type(terms).__name__!r}; for an encoding by name {_POSITIONAL}"
        )
    if len(terms.kinds) > 1:
        raise BadInput(
            f"this encoding differs by layer, and attention does not know which layer calls it: {_POSITIONAL}"
        )
    parts = [*terms.parts.values(), terms.replacement]
    if any(isinstance(part, OnEmbeddings | ReplacesEmbedding) for part in parts):
        raise BadInput(f"this encoding acts on the embeddings, before attention: {_POSITIONAL}")
    if any(isinstance(part, OnLayerInput) for part in parts):
        raise BadInput(f"this encoding acts on the input of layers, before attention: {_POSITIONAL}")
    if q.shape[2] != k.shape[2]:
        raise BadInput(
            f"an encoding alone does not say where {q.shape[2]} queries stand among {k.shape[2]} keys: pass"
            " Composition(...).prepare(query_positions, key_positions)"
        )
    (of_layer,) = terms.prepare(Contiguous(q.shape[2]), dtype=q.dtype, device=q.device).kinds
    if of_layer.by_layer:
        raise BadInput(
            "this encoding may have weights for each layer, and attention does not know which layer calls it:"
            f" {_POSITIONAL}, or pass Composition(...).prepare(...).layer(index)"
        )
    return of_layer


def _as_mask(
    terms: Terms,
    mask: Mask | Tensor | None,
    q: Tensor,
    k: Tensor,
    *,
    is_causal: bool,
    key_padding_mask: Tensor | None,
) -> Mask | Tensor | None:
    """Return the mask that torch's keywords describe, or the one that was given in their place.

    The terms give the positions, where they know them; else queries and keys stand at 0, 1, ...
    """
    if not is_causal and key_padding_mask is None:
        return mask
    if mask is not None:
        raise BadInput(
            "give either mask, or is_causal and key_padding_mask; a bool mask of your own (True = visible)"
            " is combined with padding by mask & ~key_padding_mask[:, None, None, :]"
        )
    positions = terms.positions
    query, key = positions or (Contiguous(q.shape[2]), Contiguous(k.shape[2]))
    if is_causal and positions is None and q.shape[2] != k.shape[2]:
        raise BadInput(
            f"is_causal: nothing says where {q.shape[2]} queries stand among {k.shape[2]} keys; pass"
            " mask=Mask(query_positions, key_positions, high=0)"
        )
    if is_causal and terms.two_sided:
        raise BadInput(
            "is_causal: the encoding was built for both sides, and half of its weights would never be read; build it"
            " with bidirectional=False (wordorder.Positional(..., causal=True) does), or pass"
            " mask=Mask(positions, positions, high=0) if you mean it"
        )
    tokens_BS = valid_tokens(key_padding_mask, q.shape[0], k.shape[2], device=q.device)
    return Mask(query, key, high=0 if is_causal else None, tokens_BS=tokens_BS)
