"""Turn the arguments of `attention` into a prepared order and a typed mask, or raise an error with the remedy."""

from torch import Tensor

from wordorder.attention.plan import HybridPlan, Plan
from wordorder.encodings import (
    Composition,
    Encoding,
    Hybrid,
    OnEmbeddings,
    OnScoresByContent,
    PositionTerms,
    PositionTermsByLayer,
    ReplacesEmbedding,
)
from wordorder.errors import BadInput
from wordorder.ops import Bias, Contiguous, Visibility, valid_tokens

_POSITIONAL = "use wordorder.Positional, which does all of it"


def as_order(given: object, q: Tensor, k: Tensor) -> PositionTerms | Plan | None:
    """Return the order of an encoding or a bias, for queries at 0 .. T - 1 and keys at 0 .. S - 1.

    Args:
        given: an order, a plan or None, which stay what they are; a bias; an encoding that acts on queries, keys or
            scores without weights for each layer, or several of them together.

    Raises:
        BadInput: it is something else, or more has to be done than attention can: the message says what to write.
    """
    if given is None or isinstance(given, PositionTerms | Plan):
        return given
    if isinstance(given, PositionTermsByLayer | HybridPlan):
        raise BadInput("this order differs by layer: pass order.layer(index), with the layer's index from 0")
    if isinstance(given, Bias):
        return PositionTerms(q.shape[-1] ** -0.5, given)
    if isinstance(given, Encoding):
        built_for = getattr(given, "head_dim", q.shape[-1])
        if built_for != q.shape[-1]:
            raise BadInput(f"this {type(given).__name__} is for heads of {built_for} channels, got q of {q.shape[-1]}")
        given = Composition({"encoding": given}, head_dim=q.shape[-1])
    if not isinstance(given, Composition):
        raise BadInput(
            "order must be what an encoding's prepare(...) returned, an encoding or a bias, got"
            f" {given if isinstance(given, str) else type(given).__name__!r}; for an encoding by name {_POSITIONAL}"
        )
    _check_alone(given)
    if q.shape[2] != k.shape[2]:
        raise BadInput(
            f"an encoding alone does not say where {q.shape[2]} queries stand among {k.shape[2]} keys: pass"
            " encoding.prepare(query_positions, key_positions)"
        )
    prepared = given.prepare(Contiguous(q.shape[2]), dtype=q.dtype, device=q.device)
    assert isinstance(prepared, PositionTerms)
    return prepared


def _check_alone(encoding: Composition) -> None:
    """Refuse encodings that act outside attention, or that may differ by layer."""
    if isinstance(encoding, Hybrid):
        raise BadInput(
            f"this encoding differs by layer, and attention does not know which layer calls it: {_POSITIONAL}"
        )
    parts = [*encoding.parts.values(), encoding.replacement]
    if any(isinstance(part, OnEmbeddings | ReplacesEmbedding) for part in parts):
        raise BadInput(f"this encoding acts on the embeddings, before attention: {_POSITIONAL}")
    if any(isinstance(part, OnScoresByContent) for part in parts):
        raise BadInput(
            "this encoding may have weights for each layer, and attention does not know which layer calls it:"
            f" {_POSITIONAL}, or pass encoding.prepare(...).layer(index)"
        )


def as_mask(
    order: PositionTerms | Plan | None,
    mask: Visibility | Tensor | None,
    q: Tensor,
    k: Tensor,
    *,
    is_causal: bool,
    key_padding_mask: Tensor | None,
) -> Visibility | Tensor | None:
    """Return the mask that torch's keywords describe, or the one that was given.

    Args:
        order: gives the positions, where it knows them; else queries and keys stand at 0, 1, ...
        mask: given in place of the keywords.
        is_causal: a query sees keys at its own position and before it.
        key_padding_mask: bool (B, S), True = padding.

    Raises:
        BadInput: both ways are used, a padding mask of another shape or dtype, a causal mask for queries whose places
            among the keys nobody knows, or for an encoding that was built for both sides.
    """
    if not is_causal and key_padding_mask is None:
        return mask
    if mask is not None or isinstance(order, Plan):
        raise BadInput(
            "give either mask (or a Plan), or is_causal and key_padding_mask; a bool mask of your own (True = visible)"
            " is combined with padding by mask & ~key_padding_mask[:, None, None, :]"
        )
    known = None if order is None else order.positions
    query, key = known or (Contiguous(q.shape[2]), Contiguous(k.shape[2]))
    if is_causal and known is None and q.shape[2] != k.shape[2]:
        raise BadInput(
            f"is_causal: nothing says where {q.shape[2]} queries stand among {k.shape[2]} keys; pass"
            " mask=Visibility(query_positions, key_positions, causal=True)"
        )
    if is_causal and order is not None and order.two_sided:
        raise BadInput(
            "is_causal: the encoding was built for both sides, and half of its weights would never be read; build it"
            " with bidirectional=False (wordorder.Positional(..., causal=True) does), or pass"
            " mask=Visibility(positions, positions, causal=True) if you mean it"
        )
    return Visibility(query, key, is_causal, valid_tokens(key_padding_mask, q.shape[0], k.shape[2]))
