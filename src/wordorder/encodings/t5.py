"""T5's bucketed relative bias."""

import math

import torch
from torch import Tensor, nn

from wordorder.encodings.places import OnDistance, check_positive
from wordorder.ops import t5_bucket


class T5(OnDistance):
    """Add one learned number per bucket of distance and head, shared by all layers.

    Raffel et al. 2020, https://arxiv.org/abs/1910.10683, Sec. 2.1::

        bias[h, i, j] = scale * table[bucket(j - i), h]

    Differs from the paper: q.k is divided by sqrt(D), as everywhere in this package. T5 leaves q.k undivided and folds
    the factor into its initial weights, which makes its table sqrt(D) times as strong relative to q.k as an unscaled
    table here would be. ``scale`` restores that, as GPT-NeoX and x-transformers do. Without it Adam, which moves a
    number by at most the learning rate in a step, takes thousands of steps to grow a table that can make attention
    local.

    Buckets (`t5_bucket`) are exact up to a quarter of their number, then logarithmic.

    Args:
        heads: H; positive.
        head_dim: channels per head, D; needed where ``scale`` is not given. Networks pass it.
        scale: factor on the table; positive. Default: sqrt(head_dim).
        buckets: rows of the table; even and at least 4 where bidirectional, else at least 2.
        max_distance: from here on all distances share a bucket, in tokens.
        bidirectional: separate buckets for left and right; False in decoders.

    Shape:
        positions (B or 1, T) and (B or 1, S) -> bias (B or 1, H, T, S).

    Raises:
        ValueError: an argument is out of range, or neither head_dim nor scale is given.
    """

    purpose = "learned relative positions"
    paper = "Raffel et al. 2020, https://arxiv.org/abs/1910.10683"

    def __init__(
        self,
        heads: int,
        *,
        head_dim: int | None = None,
        scale: float | None = None,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        check_positive(heads=heads, **({} if head_dim is None else {"head_dim": head_dim}))
        if scale is None:
            if head_dim is None:
                raise ValueError("scale is sqrt(head_dim) unless given: pass head_dim, or scale=1.0 for a plain table")
            scale = math.sqrt(head_dim)
        check_positive(scale=scale)
        self.heads, self.head_dim, self.scale = heads, head_dim, scale
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.constant_from = max_distance if type(self).at_distance is T5.at_distance else None
        self.table = nn.Embedding(buckets, heads)
        self.at_distance(self.table.weight.new_zeros(1).long())  # raises where the numbers do not fit together

    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the bucket's number times the scale, (H, *shape), in the dtype of the table."""
        del dtype
        bucket = t5_bucket(
            distance, buckets=self.buckets, max_distance=self.max_distance, bidirectional=self.bidirectional
        )
        return self.scale * self.table(bucket).movedim(-1, 0)

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """Return the table; each of its numbers has a gradient from the first step on."""
        return (self.table.weight,)
