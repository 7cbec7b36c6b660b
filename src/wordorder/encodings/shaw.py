"""Relative position representations on keys (Shaw et al.)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from wordorder.encodings.places import ContentTerm, OnScoresByContent, check_positive
from wordorder.ops import (
    Bias,
    DenseBias,
    Mask,
    Positions,
    RelativeBias,
    diagonal_distances,
    diagonals_not_to_the_right,
    seen_diagonals,
    shift_between,
)
from wordorder.ops.positions import distances_BTS


class Shaw(OnScoresByContent):
    """Add a learned vector of the clipped distance to each key.

    Shaw et al. 2018, "Self-attention with relative position representations", https://arxiv.org/abs/1803.02155,
    Eq. 4 with the key term only (the paper's Table 3 finds the value term unnecessary)::

        score[h, i, j] = scale * q_i^h . (k_j^h + a[clip(j - i, -max_distance, max_distance)])

    One table per layer, shared by its heads, as in the paper.

    Args:
        head_dim: channels per head, D; positive.
        layers: number of tables; positive.
        max_distance: distances beyond it are clipped, in tokens; positive. The paper uses 16 for translation.

    Shape:
        q (B, H, T, D), k (B, H, S, D) -> term (B, H, T, S), dtype of q.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "learned relative positions"
    paper = "Shaw et al. 2018, https://arxiv.org/abs/1803.02155"

    def __init__(self, head_dim: int, *, layers: int, max_distance: int = 16) -> None:
        super().__init__()
        check_positive(head_dim=head_dim, layers=layers, max_distance=max_distance)
        self.max_distance = max_distance
        self.tables = nn.ModuleList(nn.Embedding(2 * max_distance + 1, head_dim) for _ in range(layers))

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        return tuple(self.parameters())

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "ShawScores":
        """Return the term with the table's row of each distance; of each pair, where positions are not contiguous."""
        shift = shift_between(query, key)
        if shift is None:
            return ShawScores(self, self.row(distances_BTS(query, key, device)))
        row_W = self.row(diagonal_distances(query.length, key.length, shift, device))
        left, zero = diagonals_not_to_the_right(query.length, key.length, shift), query.length - 1 - shift
        edges = (zero - self.max_distance, zero + self.max_distance) if type(self).row is Shaw.row else None
        return ShawScores(self, row_W, left, key.length, edges=edges)

    def row(self, distance: Tensor) -> Tensor:
        """Return the table's row of each distance ``key - query``."""
        return distance.clamp(-self.max_distance, self.max_distance) + self.max_distance


@dataclass(frozen=True)
class ShawScores(ContentTerm):
    """The term of Shaw et al. in one forward pass and one layer."""

    encoding: Shaw
    row: Tensor
    """The table's rows of all T + S - 1 distances, (W,); or of each pair, (1 or B, T, S)."""
    left: int = 0
    """Number of distances, the first ones, that are not to the right."""
    keys: int = 0
    index: int = 0
    edges: tuple[int, int] | None = None

    def layer(self, index: int) -> "ShawScores":
        return replace(self, index=index)

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None, *, rotated: bool
    ) -> tuple[Tensor | None, Bias]:
        """Return None and the bias, by distance where positions are contiguous."""
        del k_BHSD, rotated
        table, query_BHTD = self.encoding.tables[self.index], scale * q_BHTD
        if self.row.dim() == 1:
            seen = seen_diagonals(visible, self.left, self.row.shape[0])
            rows_RD: Tensor = table(self.row[seen])
            return None, RelativeBias(
                query_BHTD, rows_RD[None, None].type_as(q_BHTD), self.keys, first=seen.start, edges=self.edges
            )
        # every query with all 2k + 1 vectors, then one per key, without a (T, S, D) tensor
        table_RD = table(torch.arange(2 * self.encoding.max_distance + 1, device=q_BHTD.device))
        by_row_BHTR = query_BHTD @ table_RD.type_as(q_BHTD).T
        row_BHTS = self.row[:, None].expand(*q_BHTD.shape[:2], -1, -1)
        return None, DenseBias(by_row_BHTR.gather(-1, row_BHTS), may_hide=False)
