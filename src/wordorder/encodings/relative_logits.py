"""Relative logits: each token mixes learned profiles over distance, by the input of its layer."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from wordorder.encodings.places import ContentTerm, OnScoresByInput, TokenFeatures, check_positive
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


class RelativeLogits(OnScoresByInput):
    """Add to each score a profile over distance, which each query mixes from a learned bank.

    The form of the public model Inkling (transformers, ``models/inkling``, `InklingRelativeLogits`), with x_i the input
    of the layer's attention (after its norm), and maps W and a bank P of each layer's own::

        r[h, i] = W_h x_i
        bias[h, i, j] = r[h, i] . P[i - j],     0 <= i - j < max_distance;  0 elsewhere

    Two-sided (encoders) the bank has profiles for ``-max_distance < i - j < max_distance``. The bias is added to the
    scaled products, and is not scaled itself.

    Args:
        width: channels of the layer's input, C; positive.
        heads: H; positive.
        layers: number of maps and banks; positive.
        rank: profiles that are mixed, R; positive. Inkling has 16.
        max_distance: distances from it on have bias 0, in tokens; positive. Inkling has 1,024.
        bidirectional: keys to the right are seen, with profiles of their own; False in decoders.

    Shape:
        x (B, T, C) -> r (B, H, T, R) -> bias (B, H, T, S), dtype of r.

    Raises:
        ValueError: an argument is out of range.
    """

    features_of_keys = False
    reads_queries_and_keys = False
    purpose = "learned relative positions"
    paper = "Inkling in transformers 2026, https://github.com/huggingface/transformers/tree/main/src/transformers/models/inkling"

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        layers: int,
        rank: int = 16,
        max_distance: int = 1024,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        check_positive(width=width, heads=heads, layers=layers, rank=rank, max_distance=max_distance)
        self.heads, self.max_distance, self.bidirectional = heads, max_distance, bidirectional
        self.rows = 2 * max_distance - 1 if bidirectional else max_distance
        self.maps = nn.ModuleList(nn.Linear(width, heads * rank, bias=False) for _ in range(layers))
        self.profiles = nn.ModuleList(nn.Embedding(self.rows, rank) for _ in range(layers))

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """Return the profiles."""
        return tuple(self.profiles.parameters())

    def cost_parts(self) -> dict[str, int]:
        parts = {"maps": self.maps, "profiles": self.profiles}
        return {name: sum(parameter.numel() for parameter in part.parameters()) for name, part in parts.items()}

    def row(self, distance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bank's row of each distance ``key - query``, and whether there is one."""
        first = 1 - self.max_distance
        last = -first if self.bidirectional else 0
        return distance.clamp(first, last) - first, (first <= distance) & (distance <= last)

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "RelativeLogitsTerm":
        """Return the term with the bank's row of each distance; of each pair, where positions are not contiguous."""
        shift = shift_between(query, key)
        if shift is None:
            return RelativeLogitsTerm(self, *self.row(distances_BTS(query, key, device)), left=None)
        distance_W = diagonal_distances(query.length, key.length, shift, device)
        left, zero = diagonals_not_to_the_right(query.length, key.length, shift), query.length - 1 - shift
        edges = (zero - self.max_distance, zero + self.max_distance) if type(self).row is RelativeLogits.row else None
        return RelativeLogitsTerm(self, *self.row(distance_W), left=left, edges=edges)


@dataclass(frozen=True)
class RelativeLogitsTerm(ContentTerm):
    """The term of relative logits in one forward pass and one layer."""

    encoding: RelativeLogits
    row: Tensor
    """The bank's rows of all T + S - 1 distances, (W,); or of each pair, (1 or B, T, S)."""
    has_row: Tensor
    """Whether there is one, of the same shape."""
    left: int | None
    """Number of distances, the first ones, that are not to the right; None = rows are those of pairs."""
    index: int = 0
    edges: tuple[int, int] | None = None
    mix_BHTR: Tensor | None = None
    """The mix of each query: r of the equation."""

    def layer(self, index: int) -> "RelativeLogitsTerm":
        return replace(self, index=index)

    def features(self, x_BTC: Tensor) -> TokenFeatures:
        """Return r of each token as a query, (B, H, T, R)."""
        mix_BTHR = torch.unflatten(self.encoding.maps[self.index](x_BTC), -1, (self.encoding.heads, -1))
        return TokenFeatures({"mix": mix_BTHR.transpose(1, 2)}, {})

    def with_features(
        self, features: TokenFeatures, positions: tuple[Positions, Positions] | None
    ) -> "RelativeLogitsTerm":
        del positions
        return replace(self, mix_BHTR=features.of_queries["mix"])

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None, *, rotated: bool
    ) -> tuple[Tensor | None, Bias]:
        """Return None and the bias, by distance where positions are contiguous."""
        del scale, rotated
        assert self.mix_BHTR is not None
        mix_BHTR, bank = self.mix_BHTR.type_as(q_BHTD), self.encoding.profiles[self.index]
        if self.left is not None:
            seen = seen_diagonals(visible, self.left, self.row.shape[0])
            if self.edges is not None and not torch.compiler.is_compiling():  # beyond them it is 0
                start = min(max(seen.start, self.edges[0] + 1), seen.stop)
                seen = slice(start, max(start, min(seen.stop, self.edges[1])))
            rows_RR: Tensor = bank(self.row[seen]) * self.has_row[seen, None]
            return None, RelativeBias(
                mix_BHTR, rows_RR[None, None].type_as(mix_BHTR), k_BHSD.shape[2], first=seen.start, edges=self.edges
            )
        profiles_NR: Tensor = bank(torch.arange(self.encoding.rows, device=mix_BHTR.device))
        by_row_BHTN = mix_BHTR @ profiles_NR.type_as(mix_BHTR).T
        row_BHTS = self.row[:, None].expand(*mix_BHTR.shape[:2], -1, -1)
        scores_BHTS = by_row_BHTN.gather(-1, row_BHTS).masked_fill(~self.has_row[:, None], 0)
        return None, DenseBias(scores_BHTS, may_hide=False)
