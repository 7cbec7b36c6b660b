"""One learned vector per position, added to the embeddings (BERT)."""

from torch import Tensor, nn

from wordorder.encodings.places import OnEmbeddings, check_positive
from wordorder.ops import PositionsLike, as_positions
from wordorder.ops.positions import table_rows


class Learned(OnEmbeddings):
    """Add a learned vector of the absolute position.

    Gehring et al. 2017, "Convolutional sequence to sequence learning", https://arxiv.org/abs/1705.03122; as used by
    Devlin et al. 2019, "BERT", https://arxiv.org/abs/1810.04805::

        x_t -> x_t + P[p_t]

    Args:
        width: model channels, C; positive.
        max_positions: rows of the table, the longest text; positive.

    Shape:
        x (B, T, C), positions (B or 1, T) in 0 .. max_positions - 1 -> like x, same dtype. Negative positions of
        left padding (`Contiguous` with offsets per example) read row 0; these tokens are masked.

    Raises:
        ValueError: an argument is out of range, or a position is outside the table.
    """

    purpose = "absolute positions"
    paper = "Gehring et al. 2017, https://arxiv.org/abs/1705.03122"
    bounded = True

    def __init__(self, width: int, *, max_positions: int) -> None:
        super().__init__()
        check_positive(width=width, max_positions=max_positions)
        self.width, self.max_positions = width, max_positions
        self.table = nn.Embedding(max_positions, width)

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        return (self.table.weight,)

    def forward(self, x_BTC: Tensor, positions: PositionsLike) -> Tensor:
        """Add the position's vector to the embeddings."""
        row_BT = table_rows(as_positions(positions), self.max_positions, x_BTC.device)
        return x_BTC + self.table(row_BT).type_as(x_BTC)
