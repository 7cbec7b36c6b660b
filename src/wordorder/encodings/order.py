"""What word order comes to in one forward, computed once and read by every layer."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from torch import Tensor

from wordorder.encodings.places import ContentScores, Move
from wordorder.ops import Bias, Positions

Term = tuple[Move, Move] | Bias | ContentScores
"""What one encoding makes of positions: moves of queries and of keys, a bias, or a term by content."""


@dataclass(frozen=True)
class Order:
    """The score of query i and key j in a layer is ``scale * move(q_i) . move(k_j) + bias[i, j] + content``.

    Args:
        scale: the content scale, 1/sqrt(D) unless an encoding decides otherwise (TUPE: 1/sqrt(2 D)).
        bias: the sum of all terms that no token has a say in.
        query_rotations: turns and shifts of the queries, in order.
        key_rotations: turns and shifts of the keys, in order.
        content: terms that depend on queries or keys.
        positions: of the queries and of the keys that it was prepared for; None = not known, and not checked.
        two_sided: whether an encoding has weights of its own for keys on the right, which a causal mask would hide.
    """

    scale: float
    bias: Bias | None = None
    query_rotations: tuple[Move, ...] = ()
    key_rotations: tuple[Move, ...] = ()
    content: tuple[ContentScores, ...] = ()
    positions: tuple[Positions, Positions] | None = field(default=None, compare=False)
    two_sided: bool = field(default=False, compare=False)

    def layer(self, index: int) -> "Order":
        """The order as layer ``index`` (from 0) sees it; only terms by content differ between layers."""
        if not self.content:
            return self
        return replace(self, content=tuple(term.layer(index) for term in self.content))

    def all_keys_to_the_right(self) -> "Order":
        """The order where every key counts as one to the right: LaMemo's full, unmasked look-ahead."""
        if not self.content:
            return self
        return replace(self, content=tuple(term.all_keys_to_the_right() for term in self.content))

    @property
    def moves(self) -> bool:
        """Whether queries or keys are turned or shifted before they meet."""
        return bool(self.query_rotations or self.key_rotations)

    def rotate_queries(self, q_BHTD: Tensor) -> Tensor:
        """Queries moved (turned, shifted) by their positions."""
        for move in self.query_rotations:
            q_BHTD = move.apply(q_BHTD)
        return q_BHTD

    def rotate_keys(self, k_BHSD: Tensor) -> Tensor:
        """Keys moved (turned, shifted) by their positions."""
        for move in self.key_rotations:
            k_BHSD = move.apply(k_BHSD)
        return k_BHSD


def order_of(
    scale: float,
    terms: Iterable[Term],
    *,
    positions: tuple[Positions, Positions] | None = None,
    two_sided: bool = False,
) -> Order:
    """The order of encodings that act together: moves one after the other, biases and terms by content added up.

    Args:
        scale: the content scale.
        terms: of the encodings, in the order of their names.
        positions: of the queries and of the keys.
        two_sided: as in `Order`.
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
    return Order(scale, bias, queries, keys, tuple(content), positions, two_sided)


@dataclass(frozen=True)
class HybridOrder:
    """Word order that differs by layer.

    Args:
        kinds: the order of each kind of layer.
        kind_of_layer: which of them each layer has.
    """

    kinds: tuple[Order, ...]
    kind_of_layer: tuple[int, ...]

    def layer(self, index: int) -> Order:
        """The order as layer ``index`` (from 0) sees it."""
        return self.kinds[self.kind_of_layer[index]].layer(index)

    def all_keys_to_the_right(self) -> "HybridOrder":
        """The order where every key counts as one to the right; see `Order.all_keys_to_the_right`."""
        return replace(self, kinds=tuple(order.all_keys_to_the_right() for order in self.kinds))
