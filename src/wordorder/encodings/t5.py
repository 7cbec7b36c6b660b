"""T5's bucketed relative bias."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import OnDistance
from wordorder.ops import t5_bucket


class T5(OnDistance):
    """Add one learned number per bucket of distance and head, shared by all layers.

    Raffel et al. 2020, https://arxiv.org/abs/1910.10683, Sec. 2.1::

        bias[h, i, j] = table[bucket(j - i), h]

    Differs from the paper: q.k keeps its scale 1/sqrt(D), as everywhere in this package (T5 folds it into the
    initial weights). Buckets are exact up to a quarter of their number, then logarithmic; see `t5_bucket`.

    Args:
        heads: H; positive.
        buckets: rows of the table; even, at least 4.
        max_distance: from here on all distances share a bucket, in tokens.
        bidirectional: separate buckets for left and right; False in decoders.

    Shape:
        positions (B or 1, T) and (B or 1, S) -> bias (B or 1, H, T, S).

    Raises:
        ValueError: an argument is out of range.
    """

    paper = "Raffel et al. 2020, https://arxiv.org/abs/1910.10683"

    def __init__(self, heads: int, *, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        if heads <= 0:
            raise ValueError(f"heads must be positive, got {heads}")
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.table = nn.Embedding(buckets, heads)
        self.at_distance(self.table.weight.new_zeros(1).long())  # raises where the numbers do not fit together

    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The bucket's number, (H, *shape), in the dtype of the table."""
        del dtype
        bucket = t5_bucket(
            distance, buckets=self.buckets, max_distance=self.max_distance, bidirectional=self.bidirectional
        )
        return F.embedding(bucket, self.table.weight).movedim(-1, 0)

    def silent_parameters(self) -> tuple[Tensor, ...]:
        """The table; each of its numbers has a gradient from the first step on."""
        return (self.table.weight,)
