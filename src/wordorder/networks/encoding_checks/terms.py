"""Check what one encoding returns at the place where it acts: types, shapes, dtypes, finite numbers."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from wordorder.encodings import (
    ContentScores,
    Move,
    OnEmbeddings,
    OnQueriesAndKeys,
    OnScores,
    OnScoresByContent,
    ReplacesEmbedding,
)
from wordorder.ops import Bias, Contiguous, Packed, Positions, Visibility

BATCH, QUERIES, KEYS = 3, 5, 7

PLACES = (OnEmbeddings, ReplacesEmbedding, OnQueriesAndKeys, OnScores, OnScoresByContent)


def term_faults(part: nn.Module, *, width: int, heads: int, vocabulary: int) -> Iterator[str]:
    """Yield the faults of the term of an encoding, one sentence each with its remedy.

    Args:
        part: the encoding; it is brought to other dtypes.
    """
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        part = part.to(dtype)
        if isinstance(part, OnEmbeddings):
            yield from _on_embeddings(part, torch.randn(BATCH, QUERIES, width, dtype=dtype))
        elif isinstance(part, ReplacesEmbedding):
            given = torch.randint(vocabulary, (BATCH, QUERIES))
            yield from _like(part(given, Contiguous(QUERIES)), (BATCH, QUERIES, width), dtype, "embeddings")
        elif isinstance(part, OnQueriesAndKeys):
            yield from _on_queries_and_keys(part, heads, width // heads, dtype)
        elif isinstance(part, OnScores):
            yield from _on_scores(part, heads, dtype)
        elif isinstance(part, OnScoresByContent):
            yield from _by_content(part, heads, width // heads, dtype)


def _on_embeddings(part: OnEmbeddings, x_BTC: Tensor) -> Iterator[str]:
    for where in (Contiguous(QUERIES), _packed()):
        found = part(x_BTC, where)
        yield from _like(found, tuple(x_BTC.shape), x_BTC.dtype, f"embeddings at {type(where).__name__} positions")


def _on_queries_and_keys(part: OnQueriesAndKeys, heads: int, head_dim: int, dtype: torch.dtype) -> Iterator[str]:
    moves = part.prepare(Contiguous(QUERIES, 2), Contiguous(KEYS), dtype=dtype, device=torch.device("cpu"))
    if len(moves) != 2 or not all(isinstance(move, Move) for move in moves):  # pyright: ignore[reportUnnecessaryIsInstance]
        yield f"prepare must return two Moves, of the queries and of the keys, got {moves!r}"
        return
    for move, tokens in zip(moves, (QUERIES, KEYS), strict=True):
        x_BHTD = torch.randn(BATCH, heads, tokens, head_dim, dtype=dtype)
        yield from _like(move.apply(x_BHTD), tuple(x_BHTD.shape), dtype, "queries or keys")


def _on_scores(part: OnScores, heads: int, dtype: torch.dtype) -> Iterator[str]:
    pairs: tuple[tuple[Positions, Positions], ...] = (
        (Contiguous(QUERIES, 2), Contiguous(KEYS)),
        (_packed(), _packed()),
        (Contiguous(1), Contiguous(1)),
    )
    for query, key in pairs:
        kind = f"{type(query).__name__} positions"
        bias = part(query, key, torch.device("cpu"), dtype)
        if not isinstance(bias, Bias):  # pyright: ignore[reportUnnecessaryIsInstance]
            yield f"forward must return a Bias (DenseBias, ToeplitzBias, LowRankBias), got {type(bias).__name__}"
            return
        dense = bias.dense()
        wanted = (heads, query.length, key.length)
        if dense.dim() != 4 or dense.shape[1] not in (1, heads) or tuple(dense.shape[2:]) != wanted[1:]:
            yield (
                f"at {kind} the bias is {tuple(dense.shape)}, and must be (B or 1, H or 1, T, S) = (1, {heads},"
                f" {query.length}, {key.length})"
            )
        elif torch.promote_types(dense.dtype, dtype) != dense.dtype:
            yield f"in a network of {dtype} the bias is {dense.dtype}; compute it in at least that, or in float32"
        elif dense.isnan().any() or (dense == torch.inf).any() or not (bias.may_hide or dense.isfinite().all()):
            yield (
                f"at {kind} the bias holds NaN or infinity; look at distance 0 and position 0 (a logarithm, a root, a"
                " division), and at padding, which stands at negative positions"
            )


def _by_content(part: OnScoresByContent, heads: int, head_dim: int, dtype: torch.dtype) -> Iterator[str]:
    query, key = Contiguous(QUERIES, 2), Contiguous(KEYS)
    term = part.prepare(query, key, device=torch.device("cpu"))
    if not isinstance(term, ContentScores):  # pyright: ignore[reportUnnecessaryIsInstance]
        yield f"prepare must return ContentScores, got {type(term).__name__}"
        return
    q_BHTD = torch.randn(BATCH, heads, QUERIES, head_dim, dtype=dtype)
    k_BHSD = torch.randn(BATCH, heads, KEYS, head_dim, dtype=dtype)
    scores = term.layer(1).scores(q_BHTD, k_BHSD, head_dim**-0.5, Visibility(query, key))
    yield from _like(scores, (BATCH, heads, QUERIES, KEYS), None, "scores")


def _like(found: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None, what: str) -> Iterator[str]:
    """Yield the faults of a tensor of known shape and dtype; a dtype of None stands for any of floating point."""
    if tuple(found.shape) != shape:
        yield f"{what} are {tuple(found.shape)}, and must be {shape}"
    elif (dtype is not None and found.dtype != dtype) or not found.is_floating_point():
        yield f"{what} come back as {found.dtype} where they were {dtype}; end with .type_as(x)"
    elif not found.isfinite().all():
        yield f"{what} hold NaN or infinity; look at position 0, and at large positions in 16 bits"


def _packed() -> Packed:
    """Return positions of two texts in a row."""
    position = torch.tensor([[0, 1, 2, 0, 1]]).expand(BATCH, -1)
    return Packed(position, torch.tensor([[0, 0, 0, 1, 1]]).expand(BATCH, -1))
