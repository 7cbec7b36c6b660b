"""The terms of the scores that positions give in one forward, computed once and read by every layer."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from torch import Tensor

from wordorder.encodings.places import ContentScores, Move
from wordorder.ops import Bias, Positions

Term = tuple[Move, Move] | Bias | ContentScores
"""The term of one encoding: moves of queries and keys, a content-independent bias, or a content term."""


@dataclass(frozen=True)
class PositionTerms:
    """The terms of attention scores: ``scale * move(q_i) . move(k_j) + bias[i, j] + content`` for query i and key j.

    Args:
        scale: the factor on q.k, 1/sqrt(D) unless an encoding sets another (TUPE: 1/sqrt(2 D)).
        bias: the content-independent bias, the sum over all encodings.
        query_rotations: rotations and shifts of the queries, in the order in which they are applied.
        key_rotations: rotations and shifts of the keys, in the order in which they are applied.
        content: terms that depend on queries or keys.
        positions: positions of the queries and of the keys; None = unknown, and not checked.
        two_sided: whether an encoding has separate weights for keys on the right, which a causal mask would hide.
    """

    scale: float
    bias: Bias | None = None
    query_rotations: tuple[Move, ...] = ()
    key_rotations: tuple[Move, ...] = ()
    content: tuple[ContentScores, ...] = ()
    positions: tuple[Positions, Positions] | None = field(default=None, compare=False)
    two_sided: bool = field(default=False, compare=False)

    def layer(self, index: int) -> "PositionTerms":
        """Return the terms of layer ``index`` (from 0); only terms that depend on content differ between layers."""
        if not self.content:
            return self
        return replace(self, content=tuple(term.layer(index) for term in self.content))

    def all_keys_to_the_right(self) -> "PositionTerms":
        """Return the terms with every key treated as one to the right, for LaMemo's full, unmasked look-ahead."""
        if not self.content:
            return self
        return replace(self, content=tuple(term.all_keys_to_the_right() for term in self.content))

    @property
    def moves(self) -> bool:
        """Tell whether queries or keys are rotated or shifted before their product."""
        return bool(self.query_rotations or self.key_rotations)

    def rotate_queries(self, q_BHTD: Tensor) -> Tensor:
        """Rotate and shift queries by their positions."""
        for move in self.query_rotations:
            q_BHTD = move.apply(q_BHTD)
        return q_BHTD

    def rotate_keys(self, k_BHSD: Tensor) -> Tensor:
        """Rotate and shift keys by their positions."""
        for move in self.key_rotations:
            k_BHSD = move.apply(k_BHSD)
        return k_BHSD


def combine_terms(
    scale: float,
    terms: Iterable[Term],
    *,
    positions: tuple[Positions, Positions] | None = None,
    two_sided: bool = False,
) -> PositionTerms:
    """Combine the terms of encodings that act together: moves are applied in turn, all other terms are added.

    Args:
        scale: the factor on q.k.
        terms: the terms of the encodings, in the order of their names.
        positions: positions of the queries and of the keys.
        two_sided: whether an encoding has separate weights for keys on the right.
    """
    moves: list[tuple[Move, Move]] = []
    content: list[ContentScores] = []
    bias: Bias | None = None
    for term in terms:
        if isinstance(term, Bias):
            bias = term if bias is None else bias + term
        elif isinstance(term, ContentScores):
            content.append(term)
        else:
            moves.append(term)
    queries, keys = tuple(q for q, _ in moves), tuple(k for _, k in moves)
    return PositionTerms(scale, bias, queries, keys, tuple(content), positions, two_sided)


@dataclass(frozen=True)
class PositionTermsByLayer:
    """Position terms that differ by layer.

    Args:
        kind_of_layer: for each layer the index of its kind.
    """

    kinds: tuple[PositionTerms, ...]
    kind_of_layer: tuple[int, ...]

    def layer(self, index: int) -> PositionTerms:
        """Return the terms of layer ``index`` (from 0)."""
        return self.kinds[self.kind_of_layer[index]].layer(index)

    def all_keys_to_the_right(self) -> "PositionTermsByLayer":
        """Return the terms with every key treated as one to the right."""
        return replace(self, kinds=tuple(kind.all_keys_to_the_right() for kind in self.kinds))
