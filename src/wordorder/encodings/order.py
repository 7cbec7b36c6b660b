"""What word order comes to in one forward, computed once and read by every layer."""

from dataclasses import dataclass, replace

from torch import Tensor

from wordorder.encodings.places import ContentScores, Rotation
from wordorder.ops import Bias


@dataclass(frozen=True)
class Order:
    """The score of query i and key j in a layer is ``scale * rotate(q_i) . rotate(k_j) + bias[i, j] + content``.

    Args:
        scale: the content scale, 1/sqrt(D) unless an encoding decides otherwise (TUPE: 1/sqrt(2 D)).
        bias: the sum of all terms that no token has a say in.
        query_rotations: turns of the queries, in order.
        key_rotations: turns of the keys, in order.
        content: terms that depend on queries or keys.
    """

    scale: float
    bias: Bias | None = None
    query_rotations: tuple[Rotation, ...] = ()
    key_rotations: tuple[Rotation, ...] = ()
    content: tuple[ContentScores, ...] = ()

    def layer(self, index: int) -> "Order":
        """The order as layer ``index`` (from 0) sees it; only terms by content differ between layers."""
        if not self.content:
            return self
        return replace(self, content=tuple(term.layer(index) for term in self.content))

    def rotate_queries(self, q_BHTD: Tensor) -> Tensor:
        """Queries turned by their positions."""
        for rotation in self.query_rotations:
            q_BHTD = rotation.apply(q_BHTD)
        return q_BHTD

    def rotate_keys(self, k_BHSD: Tensor) -> Tensor:
        """Keys turned by their positions."""
        for rotation in self.key_rotations:
            k_BHSD = rotation.apply(k_BHSD)
        return k_BHSD
