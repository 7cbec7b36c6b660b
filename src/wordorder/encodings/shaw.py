"""Relative position representations on keys (Shaw et al.)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from wordorder.encodings.places import ContentTerm, OnScoresByContent, check_positive
from wordorder.ops import Contiguous, Mask, Positions, shift_between
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
        """Return the term with the table row of each pair, (1 or B, T, S); one matrix for contiguous positions."""
        shift = shift_between(query, key)
        if shift is not None:  # one matrix for all examples
            query, key = Contiguous(query.length), Contiguous(key.length, shift)
        distance_BTS = distances_BTS(query, key, device)
        row_BTS = distance_BTS.clamp(-self.max_distance, self.max_distance) + self.max_distance
        return ShawScores(self, row_BTS, 0)


@dataclass(frozen=True)
class ShawScores(ContentTerm):
    """The term of Shaw et al. in one forward pass and one layer."""

    encoding: Shaw
    row_BTS: Tensor
    """The table row of each pair, (1 or B, T, S)."""
    index: int

    def layer(self, index: int) -> "ShawScores":
        return replace(self, index=index)

    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None) -> Tensor:
        """Multiply every query with all 2k + 1 vectors, then pick one per key, without a (T, S, D) tensor."""
        del k_BHSD, visible
        rows_R = torch.arange(2 * self.encoding.max_distance + 1, device=q_BHTD.device)
        table_RD = self.encoding.tables[self.index](rows_R)
        by_row_BHTR = (scale * q_BHTD) @ table_RD.type_as(q_BHTD).T
        row_BHTS = self.row_BTS[:, None].expand(*q_BHTD.shape[:2], -1, -1)
        return by_row_BHTR.gather(-1, row_BHTS)
