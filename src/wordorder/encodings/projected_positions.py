"""A table of positions with its own projections to queries and keys, the base of untied encodings."""

from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import Encoding
from wordorder.ops import Contiguous, Positions
from wordorder.ops.tables import check_within_table, rows


class ProjectedPositions(Encoding):
    """Position queries ``P^ U_Q`` and position keys ``P^ U_K`` per head, with P^ = LayerNorm(P).

    A subclass derives from it first, and then from the class of the place where it acts.

    Args:
        width: model channels, C; a multiple of heads.
        heads: H; positive.
        max_positions: longest text in tokens; positive.
        first_row: the row of the table for position 0; rows before it are left to the subclass.
        projection_bias: whether U_Q and U_K have biases.

    Raises:
        ValueError: an argument is out of range.
    """

    bounded = True

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        max_positions: int,
        first_row: int = 0,
        projection_bias: bool = True,
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        if width <= 0 or heads <= 0 or width % heads:
            raise ValueError(f"width must be a positive multiple of heads, got width={width}, heads={heads}")
        if max_positions <= 0:
            raise ValueError(f"max_positions must be positive, got {max_positions}")
        self.heads, self.head_dim, self.max_positions, self.first_row = heads, width // heads, max_positions, first_row
        self.table = nn.Embedding(max_positions + first_row, width)
        self.norm = nn.LayerNorm(width, eps=norm_eps)
        self.query_projection = nn.Linear(width, width, bias=projection_bias)
        self.key_projection = nn.Linear(width, width, bias=projection_bias)

    def cost_parts(self) -> dict[str, int]:
        """Return the number of parameters of the projections, the table and the norm."""
        sizes = {name: sum(p.numel() for p in module.parameters()) for name, module in self.named_children()}
        return {
            "projections": sizes["query_projection"] + sizes["key_projection"],
            "position table": sizes["table"],
            "norm": sizes["norm"],
        }

    def position_queries(self, positions: Positions) -> Tensor:
        """Return the position queries, (1 or B, H, T, d)."""
        return self._projected(self.query_projection, positions)

    def position_keys(self, positions: Positions) -> Tensor:
        """Return the position keys, (1 or B, H, T, d)."""
        return self._projected(self.key_projection, positions)

    def _projected(self, projection: nn.Linear, positions: Positions) -> Tensor:
        if isinstance(positions, Contiguous) and isinstance(positions.offset, int):
            row_1TC = rows(self.table.weight, positions, self.max_positions, first_row=self.first_row)
            vector_BTC = projection(self.norm(row_1TC))
        else:  # every row is projected once, then read by each example: cheaper than projecting B * T rows
            check_within_table(positions, self.max_positions)
            row_BT = positions.index_BT(self.table.weight.device).clamp(min=0) + self.first_row
            vector_BTC = F.embedding(row_BT, projection(self.norm(self.table.weight)))
        return cast("Tensor", vector_BTC.unflatten(-1, (self.heads, self.head_dim))).transpose(1, 2)
