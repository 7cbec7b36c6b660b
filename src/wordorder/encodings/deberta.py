"""Disentangled attention (DeBERTa): content-to-position and position-to-content terms."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import ContentTerm, OnScoresByContent, check_choice, check_positive
from wordorder.ops import (
    Bias,
    DenseBias,
    Mask,
    Positions,
    RelativeBias,
    RelativeKeyBias,
    diagonal_distances,
    diagonals_not_to_the_right,
    seen_diagonals,
    shift_between,
)
from wordorder.ops.positions import distances_BTS

Variant = Literal["paper", "reference-code"]


class DeBERTa(OnScoresByContent):
    """Add the products of queries with projected relative positions, and of keys with projected relative positions.

    He et al. 2021, "DeBERTa: decoding-enhanced BERT with disentangled attention", https://arxiv.org/abs/2006.03654,
    Sec. 3.1, Eq. 3 and 4, with the table P of 2k rows shared by all layers and maps W_kr, W_qr of each layer's own::

        delta(i, j) = 0  if i - j <= -k,   2k - 1  if i - j >= k,   i - j + k  otherwise
        score[h, i, j] = scale * ( q_i . k_j                             content-to-content
                                 + q_i . (P W_kr^h)[delta(i, j)]         content-to-position
                                 + k_j . (P W_qr^h)[delta(j, i)] )       position-to-content

    ``scale`` is 1/sqrt(3 D), or 1/sqrt(2 D) with one of the two terms left out (the paper's Table 4).

    ``variant="reference-code"``: position-to-content reads row delta(i, j), as the authors' code and transformers do,
    and so every published checkpoint; "paper" reads delta(j, i), as in Eq. 4.

    Differs from the authors' code: the maps have no biases, as in the paper. Left out: the enhanced mask decoder
    (absolute positions before the softmax layer), which is part of a head and not of attention; DeBERTa-v2's
    ``share_att_key``, for which the network's own W_q and W_k would be needed here; its layer norm and dropout of P.

    Args:
        width: model channels, C; positive.
        heads: H; positive.
        head_dim: channels per head, D; positive.
        layers: number of pairs of maps; positive.
        max_positions: longest text of the network in tokens; ``max_distance`` where that is not given. No limit.
        max_distance: k, from which on distances count as one, in tokens; positive. None = ``max_positions``, as in the
            authors' configurations (512).
        content_to_position: whether the content-to-position term is added; at least one of the two must be.
        position_to_content: whether the position-to-content term is added.
        buckets: DeBERTa-v2's ``position_buckets``, b: distances up to b/2 have a row each, those from there to
            ``max_distance`` share b/2 - 1 rows by their logarithm, on either side; P has 2b rows. Even, at least 4 and
            less than 2 (max_distance - 1); v2 and v3 take 256 for 512. None = as in the paper.
        variant: "paper" or "reference-code": the row that position-to-content reads.

    Shape:
        q (B, H, T, D), k (B, H, S, D) -> term (B, H, T, S), dtype of q.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "learned relative positions"
    paper = "He et al. 2021, https://arxiv.org/abs/2006.03654"
    refused_in: ClassVar[Mapping[str, str]] = {
        "cross-attention": "its distances are between tokens of one text; positions of a source and a target have no"
        " common axis (the paper defines it for self-attention only)"
    }

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        head_dim: int,
        layers: int,
        max_positions: int = 512,
        max_distance: int | None = None,
        content_to_position: bool = True,
        position_to_content: bool = True,
        buckets: int | None = None,
        variant: Variant = "paper",
    ) -> None:
        super().__init__()
        check_choice("variant", variant, Variant)
        furthest = max_positions if max_distance is None else max_distance
        check_positive(width=width, heads=heads, head_dim=head_dim, layers=layers, max_distance=furthest)
        if not (content_to_position or position_to_content):
            raise ValueError("content_to_position and position_to_content cannot both be False; take encoding 'none'")
        if buckets is not None and (buckets < 4 or buckets % 2 or buckets >= 2 * (furthest - 1)):
            raise ValueError(
                f"buckets must be even, at least 4 and less than 2 (max_distance - 1) = {2 * (furthest - 1)}, got "
                f"{buckets}"
            )
        self.heads, self.max_distance, self.buckets, self.variant = heads, furthest, buckets, variant
        self.span = furthest if buckets is None else buckets
        self.table = nn.Embedding(2 * self.span, width)
        self.key_projections, self.query_projections = (
            nn.ModuleList(nn.Linear(width, heads * head_dim, bias=False) for _ in range(layers)) if is_added else None
            for is_added in (content_to_position, position_to_content)
        )

    def content_scale(self, head_dim: int) -> float | None:
        """Return 1/sqrt(number of terms * D)."""
        terms = 1 + sum(maps is not None for maps in (self.key_projections, self.query_projections))
        return (terms * head_dim) ** -0.5

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        return (self.table.weight,)

    def cost_parts(self) -> dict[str, int]:
        maps = {"W_kr": self.key_projections, "W_qr": self.query_projections}
        sizes = {name: sum(p.numel() for p in of.parameters()) for name, of in maps.items() if of is not None}
        return {"relative table": self.table.weight.numel(), **sizes}

    def row(self, back: Tensor) -> Tensor:
        """Return delta of integers ``i - j`` of any shape: the row of P."""
        if self.buckets is not None:
            back = _log_bucket(back, self.buckets, self.max_distance)
        return (back + self.span).clamp(0, 2 * self.span - 1)

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "DeBERTaScores":
        """Return the term with its rows of P: T + S - 1 by distance for contiguous positions, else one per pair."""
        shift = shift_between(query, key)
        if shift is None:
            back, left, edges = -distances_BTS(query, key, device), 0, None
        else:
            back = -diagonal_distances(query.length, key.length, shift, device)
            left, zero = diagonals_not_to_the_right(query.length, key.length, shift), query.length - 1 - shift
            edges = (zero - self.max_distance, zero + self.max_distance) if type(self).row is DeBERTa.row else None
        met = -back if self.variant == "paper" else back
        return DeBERTaScores(self, self.row(back), self.row(met), left, query.length, edges=edges)


@dataclass(frozen=True)
class DeBERTaScores(ContentTerm):
    """The terms of DeBERTa in one forward pass and one layer."""

    encoding: DeBERTa
    as_key: Tensor
    """delta(i, j), by distance j - i from the lowest (T + S - 1,), or of every pair (1 or B, T, S)."""
    as_query: Tensor
    """delta(j, i), or delta(i, j) in the variant "reference-code", by distance or of every pair."""
    left: int
    """Number of distances, the first ones, that are not to the right."""
    queries: int
    index: int = 0
    edges: tuple[int, int] | None = None

    def layer(self, index: int) -> "DeBERTaScores":
        return replace(self, index=index)

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None, *, rotated: bool
    ) -> tuple[Tensor | None, Bias]:
        del rotated
        terms: list[Bias] = []
        if self.encoding.key_projections is not None:
            terms.append(self._content_to_position(self.encoding.key_projections[self.index], q_BHTD, scale, visible))
        if self.encoding.query_projections is not None:
            terms.append(self._position_to_content(self.encoding.query_projections[self.index], k_BHSD, scale, visible))
        return None, terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def _content_to_position(
        self, maps: nn.Module, q_BHTD: Tensor, scale: float, visible: Mask | Tensor | None
    ) -> Bias:
        """Return the content-to-position term ``q_i . (P W_kr)[delta(i, j)]``."""
        if self.as_key.dim() > 1:
            rows_1HXD = scale * self._rows(maps, None, q_BHTD.dtype)
            return DenseBias(_at_pairs(q_BHTD, rows_1HXD, self.as_key), may_hide=False)
        seen = seen_diagonals(visible, self.left, self.as_key.shape[0])
        rows_1HRD = scale * self._rows(maps, self.as_key[seen], q_BHTD.dtype)
        keys = self.as_key.shape[0] - self.queries + 1
        return RelativeBias(q_BHTD, rows_1HRD, keys, first=seen.start, edges=self.edges)

    def _position_to_content(
        self, maps: nn.Module, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None
    ) -> Bias:
        """Return the position-to-content term ``k_j . (P W_qr)[delta(j, i)]``, or with delta(i, j)."""
        if self.as_query.dim() > 1:
            row_BST = self.as_query.transpose(-1, -2)
            term_BHST = _at_pairs(k_BHSD, scale * self._rows(maps, None, k_BHSD.dtype), row_BST)
            return DenseBias(term_BHST.transpose(-1, -2), may_hide=False)
        seen = seen_diagonals(visible, self.left, self.as_query.shape[0])
        rows_1HRD = scale * self._rows(maps, self.as_query[seen].flip(0), k_BHSD.dtype)
        diagonals, edges = self.as_query.shape[0], self.edges
        edges = None if edges is None else (diagonals - 1 - edges[1], diagonals - 1 - edges[0])
        return RelativeKeyBias(k_BHSD, rows_1HRD, self.queries, first=diagonals - seen.stop, edges=edges)

    def _rows(self, projection: nn.Module, row_R: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Project these rows of P, or all of them, for each head, (1, H, R, D); each row of P at most once."""
        table, rows = self.encoding.table, 2 * self.encoding.span
        # one branch for every length where the code is traced
        if row_R is None or torch.compiler.is_compiling() or row_R.shape[0] >= rows:
            rows_RX = projection(table(torch.arange(rows, device=self.as_key.device)))
            rows_RX = rows_RX if row_R is None else F.embedding(row_R, rows_RX)
        else:
            rows_RX = projection(table(row_R))
        heads = self.encoding.heads
        rows_RHD = rows_RX.view(rows_RX.shape[0], heads, rows_RX.shape[-1] // heads)  # there may be no row
        return rows_RHD.transpose(0, 1)[None].to(dtype)


def _at_pairs(x_BHTD: Tensor, rows_1HXD: Tensor, row_BTS: Tensor) -> Tensor:
    """Multiply every token of x with every row of the table, then pick the row of each pair, (B, H, T, S)."""
    by_row_BHTX = x_BHTD @ rows_1HXD.transpose(-1, -2)
    return by_row_BHTX.gather(-1, row_BTS[:, None].expand(*x_BHTD.shape[:2], -1, -1))


def _log_bucket(back: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Return DeBERTa-v2's signed bucket of ``i - j``, long, of its shape: -buckets .. buckets, the last without a row.

    With m = buckets / 2 and M = max_distance: the distance itself up to m, else with its sign
    ``m + ceil(log(|i - j| / m) / log((M - 1) / m) * (m - 1))``. Borders, the first distance of each bucket beyond m,
    are computed in Python's float64, with no logarithm of each distance: M - 1 ends its bucket on every device.
    """
    middle = buckets // 2
    growth = math.log((max_distance - 1) / middle) / (middle - 1)
    # the small number keeps a border that is a whole number from falling on the other side by rounding
    borders = [math.floor(middle * math.exp(growth * n) + 1e-9) + 1 for n in range(middle)]
    beyond = torch.bucketize(back.abs(), torch.tensor(borders, device=back.device), right=True)
    return torch.where(beyond > 0, back.sign() * (middle + beyond), back)
