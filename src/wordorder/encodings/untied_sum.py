"""The untied sum: positions with separate projections, added to those of words (TUPE's ablation BERT-A^d)."""

import torch

from wordorder.encodings.places import OnQueriesAndKeys, Shift
from wordorder.encodings.tupe import ProjectedPositions
from wordorder.ops import Positions


class UntiedSum(ProjectedPositions, OnQueriesAndKeys):
    """Add position queries to the queries and position keys to the keys, and keep all four products.

    Ke, He, Liu 2021, "Rethinking positional encoding in language pre-training", https://arxiv.org/abs/2006.15595,
    the ablation BERT-A^d, which measures how much of TUPE's gain comes from the added projections alone. Per head,
    with d channels per head, and P^ = LayerNorm(P)::

        score[i, j] = 1/sqrt(4 d) (x_i W_Q + P^_i U_Q) . (x_j W_K + P^_j U_K)

    which is the sum of word to word, word to position, position to word and position to position. U_Q and U_K are
    shared by all layers, [CLS] is a position like any other, and nothing is added to the embeddings. TUPE keeps the
    first and the last product and unties [CLS].

    Differs from the paper: U_Q and U_K have biases unless ``projection_bias=False``.

    With grouped queries the key heads are repeated first, so that each query head has position keys of its own.

    Args:
        width: model channels, C; a multiple of heads.
        heads: query heads, H; positive.
        max_positions: longest text in tokens, rows of the table; positive.
        projection_bias: whether U_Q and U_K have biases.
        norm_eps: epsilon of the layer norm; 1e-5 as in TUPE's reference code.

    Shape:
        positions (B or 1, T) -> shifts (B or 1, H, T, D) in the dtype of the parameters. Negative positions of left
        padding (`Contiguous` with offsets per example) read row 0; these tokens are masked.

    Raises:
        ValueError: an argument is out of range, or a position is outside the table.
    """

    def __init__(
        self, width: int, *, heads: int, max_positions: int, projection_bias: bool = True, norm_eps: float = 1e-5
    ) -> None:
        super().__init__(
            width,
            heads=heads,
            max_positions=max_positions,
            first_row=0,
            projection_bias=projection_bias,
            norm_eps=norm_eps,
        )

    def content_scale(self, head_dim: int) -> float:
        """Return 1/sqrt(4 d), for four terms of equal variance."""
        return (4 * head_dim) ** -0.5

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> tuple[Shift, Shift]:
        """Return position queries and position keys, in the dtype of the parameters."""
        del dtype
        return (
            Shift(self.projected(self.query_projection, query, device)),
            Shift(self.projected(self.key_projection, key, device)),
        )
