"""The relative positions of Transformer-XL, and their extension to keys on the right by LaMemo."""

# torch.unique is typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from torch import Tensor, nn

from wordorder.encodings.places import ContentTerm, OnScoresByContent, check_choice, check_positive, check_sines
from wordorder.ops import (
    Bias,
    Contiguous,
    DenseBias,
    LowRankBias,
    Mask,
    Positions,
    RelativeBias,
    ToeplitzBias,
    diagonal_distances,
    diagonals_not_to_the_right,
    relative_shift,
    seen_diagonals,
    shift_between,
)
from wordorder.ops.positions import distances_BTS

Sides = Literal["signed", "disentangled", "two-vectors"]


class TransformerXL(OnScoresByContent):
    """Add a projection of the sines of the distance to each key, and two learned vectors per head to the query.

    Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860, Sec. 3.3; for keys to the right Ji et al.
    2022, "LaMemo", https://arxiv.org/abs/2204.07341, Sec. 3.2. With t = i - j tokens from query i back to key j::

        score[h, i, j] = scale * ((q_i + u_h) . k_j + (q_i + v_h) . W_h R(t))
        R(t) = [sin(t w_0) .. sin(t w_C/2-1), cos(t w_0) .. ],  w_m = base ** (-2 m / C)  [radians per token]

    W is one map (C to H * D, no bias) per layer; u and v are shared by all layers. For a key to the right of its query
    (t < 0) there are three variants, which differ in how right is distinguished from left:

    ===============  ==================================  ==============================================
    ``sides``        to the right                        in LaMemo's reference code
    ===============  ==================================  ==============================================
    "signed"         u, v and R(t): the sign of t        ``attn_type`` 31
    "disentangled"   u, v_right and R(|t|)               ``attn_type`` 3, the paper's
    "two-vectors"    u_right, v_right and R(|t|)         ``attn_type`` 32
    ===============  ==================================  ==============================================

    ``attn_type`` 33 is "disentangled" after `TransformerXLScores.right_only`.

    Differs from the reference code: all four vectors are drawn like every other matrix of the network, N(0, 0.02)
    unless told otherwise (its rule omits those of the right side, which stay uniform within sqrt(6 / (H + D)));
    ``clamp`` acts on both sides (its ``clamp_len`` leaves the negative distances of ``attn_type`` 31 alone); angles
    are in at least float32.

    Args:
        width: model channels, C; positive and even.
        heads: H; positive.
        head_dim: channels per head, D; positive.
        layers: number of maps W; positive.
        sides: the variant for keys to the right, in the table above.
        clamp: largest distance in tokens; larger ones are set to it (``clamp_len``); positive, None = no limit.
        bidirectional: whether any query sees keys to its right. With False (decoders whose memory does not look ahead)
            there are no vectors of the right side, and ``sides`` has no effect.
        vectors_per_layer: whether each layer has its own u and v (``untie_r``, as in the paper's largest models).
        base: sets the longest wavelength, about 2 pi * base tokens; greater than 1.

    Shape:
        q (B, H, T, D), k (B, H, S, D) -> term (B, H, T, S), dtype of q.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "learned relative positions"
    paper = "Dai et al. 2019, https://arxiv.org/abs/1901.02860"

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        head_dim: int,
        layers: int,
        sides: Sides = "disentangled",
        clamp: int | None = None,
        bidirectional: bool = True,
        vectors_per_layer: bool = False,
        base: float = 10_000.0,
    ) -> None:
        super().__init__()
        check_sines(base, "width", width)
        check_positive(heads=heads, head_dim=head_dim, layers=layers)
        check_choice("sides", sides, Sides)
        if clamp is not None and clamp <= 0:
            raise ValueError(f"clamp must be positive or None, got {clamp}")
        self.width, self.heads, self.head_dim, self.base, self.clamp = width, heads, head_dim, base, clamp
        self.sides: Sides = sides if bidirectional else "signed"
        self.projections = nn.ModuleList(nn.Linear(width, heads * head_dim, bias=False) for _ in range(layers))
        self.vectors_per_layer = vectors_per_layer
        shape = (layers, heads, head_dim) if vectors_per_layer else (heads, head_dim)
        self.content_bias = nn.Parameter(torch.zeros(shape))
        self.position_bias = nn.Parameter(torch.zeros(shape))
        if self.sides != "signed":
            self.position_bias_right = nn.Parameter(torch.zeros(shape))
        if self.sides == "two-vectors":
            self.content_bias_right = nn.Parameter(torch.zeros(shape))

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        return tuple(self.parameters())

    def cost_parts(self) -> dict[str, int]:
        maps = sum(parameter.numel() for parameter in self.projections.parameters())
        return {"W_r": maps, "u, v": sum(parameter.numel() for parameter in self.parameters()) - maps}

    def vectors(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return u and v for keys to the left, and for keys to the right; (L, H, D) each if layers have their own.

        A vector that the right side does not have is the left side's.
        """
        right_v = self.position_bias if self.sides == "signed" else self.position_bias_right
        right_u = self.content_bias_right if self.sides == "two-vectors" else self.content_bias
        return (self.content_bias, self.position_bias), (right_u, right_v)

    def sines(self, back: Tensor) -> Tensor:
        """Return R(t) of t = query - key, (..., C) in at least float32; |t| in place of t unless signed; clamped."""
        wide = torch.promote_types(self.content_bias.dtype, torch.float32)
        distance = back if self.sides == "signed" else back.abs()
        if self.clamp is not None:
            distance = distance.clamp(-self.clamp, self.clamp)
        two_m_K = torch.arange(0, self.width, 2, device=back.device, dtype=wide)
        angle = distance.to(wide)[..., None] * self.base ** (-two_m_K / self.width)
        return torch.cat((angle.sin(), angle.cos()), dim=-1)

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "TransformerXLScores":
        """Return the term with the distances that occur (T + S - 1 for contiguous positions) and their sines."""
        shift = shift_between(query, key)
        column_BTS: Tensor | None = None
        left: int | None = None
        if shift is not None:
            left = diagonals_not_to_the_right(query.length, key.length, shift)
            back_BW = -diagonal_distances(query.length, key.length, shift, device)[None]
        elif isinstance(query, Contiguous) and isinstance(key, Contiguous):
            shift_B1 = key.index_BT(device)[:, :1] - query.index_BT(device)[:, :1]  # one per example
            back_BW = -diagonal_distances(query.length, key.length, shift_B1, device)
        else:
            back_BW, column_BTS = _occurring(-distances_BTS(query, key, device))
        return TransformerXLScores(self, back_BW, self.sines(back_BW), column_BTS, left, self.vectors())


@dataclass(frozen=True)
class TransformerXLScores(ContentTerm):
    """The term of Transformer-XL in one forward pass and one layer."""

    encoding: TransformerXL
    back_BW: Tensor
    """Distances query - key, (1 or B, W)."""
    sines_BWC: Tensor
    column_BTS: Tensor | None
    """The index of each pair's distance, (1 or B, T, S); None = contiguous positions, with j - i + T - 1."""
    left: int | None
    """Number of distances, the first ones, that are not to the right; None = unknown without reading a tensor."""
    vectors: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
    """u and v for keys to the left, and for keys to the right."""
    index: int = 0
    all_right: bool = False

    def layer(self, index: int) -> "TransformerXLScores":
        return replace(self, index=index)

    def right_only(self) -> "TransformerXLScores":
        """Return the term with the vectors of the right side for all keys (``attn_type`` 33); no effect if signed."""
        return replace(self, all_right=True)

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None, *, rotated: bool
    ) -> tuple[Tensor | None, Bias]:
        """Return u, to be added to the queries, and the products with R; with ``rotated`` None, and u.k in the bias."""
        right = self._side(visible)
        u_HD, v_HD = self._vectors(right=bool(right))
        seen = seen_diagonals(visible, self.left, self.back_BW.shape[1])
        rows_BHRD = scale * self._rows(q_BHTD.dtype, seen)
        term = self._by_distance(q_BHTD + v_HD[:, None].type_as(q_BHTD), rows_BHRD, k_BHSD.shape[2], seen.start)
        if right is None:
            term = term + self._right_of_v(rows_BHRD, q_BHTD.shape[2])
            if self.encoding.sides == "two-vectors":
                term = term + self._right_of_u(k_BHSD, scale, q_BHTD.shape[2])
        if not rotated:
            return u_HD[:, None], term
        u_k_BHS1 = scale * (k_BHSD @ u_HD[..., None].type_as(k_BHSD))
        ones_BHT1 = u_k_BHS1.new_ones(1, 1, 1, 1).expand(1, k_BHSD.shape[1], q_BHTD.shape[2], 1)
        return None, term + LowRankBias(ones_BHT1, u_k_BHS1)

    def _vectors(self, *, right: bool) -> tuple[Tensor, Tensor]:
        """Return u and v of one side, (H, D) each."""
        (u, v), (right_u, right_v) = self.vectors
        if right:
            u, v = right_u, right_v
        else:
            u, v = _with_zero_gradient(u, right_u), _with_zero_gradient(v, right_v)
        return (u[self.index], v[self.index]) if self.encoding.vectors_per_layer else (u, v)

    def _side(self, visible: Mask | Tensor | None) -> bool | None:
        """Tell whether all visible keys are to the right (True) or none (False); None if both sides are needed."""
        if self.all_right or self.encoding.sides == "signed":
            return self.all_right
        if not isinstance(visible, Mask):
            return None
        return True if not visible.sees_left else False if not visible.sees_right else None

    def _rows(self, dtype: torch.dtype, seen: slice) -> Tensor:
        """Return ``W R(t)`` per head for the distances that are seen, (1 or B, H, R, D)."""
        # called, not multiplied by its weight: an adapter in its place computes more than that
        projection = self.encoding.projections[self.index]
        weight = getattr(projection, "weight", None)
        # a quantised weight, of 8 bits, is not what is computed in
        is_plain = isinstance(weight, Tensor) and weight.is_floating_point() and weight.itemsize > 1
        sines_BRC = self.sines_BWC[:, seen].to(cast("Tensor", weight).dtype if is_plain else dtype)
        rows_BRX = projection(sines_BRC)
        rows_BRHD: Tensor = rows_BRX.unflatten(-1, (self.encoding.heads, -1))
        return rows_BRHD.transpose(1, 2).to(dtype)

    def _by_distance(self, query_BHTD: Tensor, rows_BHRD: Tensor, keys: int, first: int) -> Bias:
        """Return ``query_i . row(t)`` of every pair."""
        if self.column_BTS is None:
            return RelativeBias(query_BHTD, rows_BHRD, keys, first=first)
        product_BHTW = query_BHTD @ rows_BHRD.transpose(-1, -2)
        return DenseBias(self._at_pairs(product_BHTW), may_hide=False)

    def _right_of_v(self, rows_BHWD: Tensor, queries: int) -> Bias:
        """Return the correction for v_right: ``(v_right - v) . row(t)`` for t < 0, else 0."""
        (_, v_HD), (_, right_HD) = (self._vectors(right=side) for side in (False, True))
        added_BHW = (rows_BHWD @ (right_HD - v_HD)[..., None].type_as(rows_BHWD))[..., 0]
        added_BHW = added_BHW.masked_fill(self.back_BW[:, None] >= 0, 0)
        if self.column_BTS is None and added_BHW.shape[0] == 1:
            return ToeplitzBias(added_BHW[0], queries, may_hide=False)
        return DenseBias(self._at_pairs(added_BHW[:, :, None].expand(-1, -1, queries, -1)), may_hide=False)

    def _right_of_u(self, k_BHSD: Tensor, scale: float, queries: int) -> Bias:
        """Return the correction for u_right: ``scale (u_right - u) . k_j`` for t < 0, else 0."""
        (u_HD, _), (right_HD, _) = (self._vectors(right=side) for side in (False, True))
        added_BHS = scale * (k_BHSD @ (right_HD - u_HD)[..., None].type_as(k_BHSD))[..., 0]
        is_right_B1TS = self._at_pairs((self.back_BW < 0)[:, None, None].expand(-1, 1, queries, -1))
        return DenseBias(added_BHS[:, :, None].masked_fill(~is_right_B1TS, 0), may_hide=False)

    def _at_pairs(self, by_distance_BHTW: Tensor) -> Tensor:
        """Turn columns by distance into columns by key, (B, H, T, S)."""
        if self.column_BTS is None:
            queries, width = by_distance_BHTW.shape[-2:]
            return relative_shift(by_distance_BHTW, width - queries + 1)
        batch = max(len(by_distance_BHTW), len(self.column_BTS))
        heads = by_distance_BHTW.shape[1]
        column_BHTS = self.column_BTS[:, None].expand(batch, heads, -1, -1)
        return by_distance_BHTW.expand(batch, -1, -1, -1).gather(-1, column_BHTS)


def _with_zero_gradient(vector: Tensor, other: Tensor) -> Tensor:
    """Return the vector, and give the other a gradient of 0 where no key is to the right (a text's first segment).

    DDP would wait for a missing gradient and fail.
    """
    return vector if other is vector else vector + 0.0 * other


def _occurring(back_BTS: Tensor) -> tuple[Tensor, Tensor]:
    """Return distances, ascending, (1, W), with all that occur among them, and the column of each pair.

    It reads the tensor, and waits for a GPU: arbitrary positions do not tell otherwise how many rows are needed.
    """
    if back_BTS.numel() == 0:
        return back_BTS.new_zeros(1, 1), back_BTS
    low, high = int(back_BTS.min()), int(back_BTS.max())
    if high - low < 4 * back_BTS.numel():  # not so many that sorting all pairs would save memory
        return torch.arange(low, high + 1, device=back_BTS.device)[None], back_BTS - low
    found_W, column_BTS = torch.unique(back_BTS, return_inverse=True)
    return found_W[None], column_BTS
