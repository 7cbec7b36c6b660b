"""Untied positional encoding (TUPE): separate correlations of words and of positions, and an untied [CLS]."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import Encoding, OnScores, check_choice, check_positive
from wordorder.encodings.t5 import T5
from wordorder.ops import Bias, Contiguous, LowRankBias, Positions
from wordorder.ops.positions import table_rows

CLS = Literal["position-0", "none"]
Theta = Literal["table-rows", "free"]
Reset = Literal["paper", "reference-code"]


class ProjectedPositions(Encoding):
    """The base of untied encodings: position queries ``P^ U_Q`` and keys ``P^ U_K`` per head, with P^ = LayerNorm(P).

    A subclass derives from it first, and then from the class of the place where it acts. ``first_row`` is the row of
    the table for position 0; rows before it are left to the subclass.
    """

    purpose = "absolute positions"
    paper = "Ke et al. 2021, https://arxiv.org/abs/2006.15595"
    refused_in: ClassVar[Mapping[str, str]] = {
        "cross-attention": "positions of a source and a target have no common axis (the paper defines it for"
        " self-attention only)"
    }
    bounded = True

    def __init__(
        self, width: int, *, heads: int, max_positions: int, first_row: int, projection_bias: bool, norm_eps: float
    ) -> None:
        super().__init__()
        if width <= 0 or heads <= 0 or width % heads:
            raise ValueError(f"width must be a positive multiple of heads, got width={width}, heads={heads}")
        check_positive(max_positions=max_positions)
        self.heads, self.head_dim, self.max_positions, self.first_row = heads, width // heads, max_positions, first_row
        self.table = nn.Embedding(max_positions + first_row, width)
        self.norm = nn.LayerNorm(width, eps=norm_eps)
        self.query_projection = nn.Linear(width, width, bias=projection_bias)
        self.key_projection = nn.Linear(width, width, bias=projection_bias)

    def cost_parts(self) -> dict[str, int]:
        sizes = {name: sum(p.numel() for p in module.parameters()) for name, module in self.named_children()}
        return {
            "projections": sizes["query_projection"] + sizes["key_projection"],
            "position table": sizes["table"],
            "norm": sizes["norm"],
        }

    def projected(self, projection: nn.Module, positions: Positions, device: torch.device | None) -> Tensor:
        """Return the position queries or keys, by the projection of either, (1 or B, H, T, d)."""
        row_BT = table_rows(positions, self.max_positions, device, first_row=self.first_row)
        if isinstance(positions, Contiguous) and isinstance(positions.offset, int):
            vector_BTC = projection(self.norm(self.table(row_BT)))
        else:  # every row is projected once, then read by each example: cheaper than projecting B * T rows
            row_R = torch.arange(self.max_positions + self.first_row, device=row_BT.device)
            vector_BTC = F.embedding(row_BT, projection(self.norm(self.table(row_R))))
        return vector_BTC.view(*vector_BTC.shape[:-1], self.heads, self.head_dim).transpose(1, 2)


class TUPE(ProjectedPositions, OnScores):
    """Add the correlation of absolute positions, with separate projections, to that of the words (TUPE-A).

    Ke, He, Liu 2021, "Rethinking positional encoding in language pre-training", https://arxiv.org/abs/2006.15595,
    Eq. 7 and 9. Per head, with d channels per head, s = 1/sqrt(2 d), and P^ = LayerNorm(P)::

        score[i, j] = s (x_i W_Q) . (x_j W_K) + bias[i, j]
        V[i, j]     = s (P^_i U_Q) . (P^_j U_K)
        bias[i, j]  = theta1   where token i is [CLS] (position 0), itself included
                      theta2   where token j is [CLS] and i is not
                      V[i, j]  otherwise

    The encoding sets the content scale to s too. It is computed once per forward and shared by all layers, as a
    `LowRankBias` of rank d + 2: V with the [CLS] row and column cut out, one feature for the row, one for the column.

    **theta1 is inert**: it adds one constant to a whole row of scores, which softmax cancels, so it changes no output
    and gets no gradient (a test shows it). It is kept because checkpoints hold it and because the log-sum-exp of the
    row, which look-ahead memory reads, contains it.

    Differs from the paper, after the reference code: U_Q and U_K have biases (``projection_bias=False`` for the
    paper's form); theta1 and theta2 are self-correlations of table rows 0 and 1 (``theta="free"`` for two free numbers
    per head), and token i reads row i + 1; the layer norm is affine, one for all rows.

    Args:
        width: model channels, C; a multiple of heads.
        heads: H; positive.
        max_positions: longest text in tokens; positive. The table has one row more with ``theta="table-rows"``.
        cls: "position-0" for texts whose first token is [CLS]: unties the token at position 0, in whichever column of
            the row it is. "none", the default, unties nothing: "position-0" would take the positional scores from any
            other first token. (On texts with a [CLS], "none" is the paper's ablation "tie-cls".)
        theta: the source of theta1 and theta2, "table-rows" or "free"; read only with ``cls="position-0"``.
        projection_bias: whether U_Q and U_K have biases.
        norm_eps: epsilon of the layer norm; 1e-5 as in the reference code.

    Shape:
        positions (B or 1, T) and (B or 1, S) -> bias (B or 1, H, T, S), dtype of the parameters.

    Raises:
        ValueError: an argument is out of range, or a position is outside the table.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        max_positions: int,
        cls: CLS = "none",
        theta: Theta = "table-rows",
        projection_bias: bool = True,
        norm_eps: float = 1e-5,
    ) -> None:
        check_choice("cls", cls, CLS)
        check_choice("theta", theta, Theta)
        super().__init__(
            width,
            heads=heads,
            max_positions=max_positions,
            first_row=int(cls == "position-0" and theta == "table-rows"),
            projection_bias=projection_bias,
            norm_eps=norm_eps,
        )
        self.cls, self.theta = cls, theta
        if cls == "position-0" and theta == "free":
            self.free_theta = nn.Parameter(torch.zeros(2, heads))

    def content_scale(self, head_dim: int) -> float:
        """Return 1/sqrt(2 d), for two terms of equal variance."""
        return (2 * head_dim) ** -0.5

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> Bias:
        """Return the correlation of positions, [CLS] untied, in the dtype of the parameters."""
        del dtype
        return self._bias(query, key, device or _device_of(self))

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """Return the query projection and free thetas: with these at 0 all correlations and both thetas are 0.

        They have a gradient from the first step on; key projection, norm and table from the second.
        """
        free = (self.free_theta,) if hasattr(self, "free_theta") else ()
        return (*self.query_projection.parameters(), *free)

    @property
    def first_position_apart(self) -> bool:
        """True if [CLS], at position 0, has numbers of its own."""
        return self.cls == "position-0"

    def maps(self, positions: Positions) -> dict[str, Tensor]:
        """Return the matrices for a figure, (1 or B, H, N, N) each: the "absolute" part, here the whole bias."""
        return {"absolute": self(positions, positions).dense()}

    def cost_parts(self) -> dict[str, int]:
        free = {"thetas": self.free_theta.numel()} if hasattr(self, "free_theta") else {}
        return super().cost_parts() | free

    def thetas(self, device: torch.device | None = None) -> Tensor:
        """Return theta1 and theta2 per head, (2, H); the table is read on ``device``, None = that of the parameters."""
        if self.theta == "free":
            return self.free_theta
        device = device or _device_of(self)
        row_2C = self.norm(self.table(torch.arange(2, device=device)))
        product_2C = self.query_projection(row_2C) * self.key_projection(row_2C)
        return product_2C.unflatten(-1, (self.heads, self.head_dim)).sum(-1) * self.content_scale(self.head_dim)

    def _bias(self, query: Positions, key: Positions, device: torch.device) -> Bias:
        return self._correlation(query, key, device, self._cls_scores(query, key, device))

    def _cls_scores(self, query: Positions, key: Positions, device: torch.device) -> tuple[Tensor, Tensor] | None:
        """Return the [CLS] row, one number per key (1 or B, H, S), and the column, one per query (1 or B, H, T).

        None where [CLS] is not untied.
        """
        if self.cls == "none":
            return None
        theta1_H, theta2_H = self.thetas(device)
        row_BHS = theta1_H[None, :, None].expand(1, -1, key.length)
        column_BHT = theta2_H[None, :, None].expand(1, -1, query.length)
        return row_BHS, column_BHT

    def _correlation(
        self, query: Positions, key: Positions, device: torch.device, cls_scores: tuple[Tensor, Tensor] | None
    ) -> Bias:
        """Return the low-rank term: these scores on the [CLS] row and column, V elsewhere."""
        a_BHTD = self.projected(self.query_projection, query, device) * self.content_scale(self.head_dim)
        c_BHSD = self.projected(self.key_projection, key, device)
        if cls_scores is None:
            return LowRankBias(a_BHTD, c_BHSD)
        row_BHS, column_BHT = cls_scores
        cls_query_BHT1, cls_key_BHS1 = ((at.index_BT(device) == 0)[:, None, :, None] for at in (query, key))
        column_BHT1 = column_BHT[..., None].masked_fill(cls_query_BHT1, 0)
        a, c = a_BHTD.masked_fill(cls_query_BHT1, 0), c_BHSD.masked_fill(cls_key_BHS1, 0)
        query_factor = _join(a, cls_query_BHT1.type_as(a), column_BHT1)
        return LowRankBias(query_factor, _join(c, row_BHS[..., None], cls_key_BHS1.type_as(c)))


class TUPERelative(TUPE):
    """Add the terms of TUPE-A and one learned number per bucket of distance and head (TUPE-R).

    Ke et al. 2021, https://arxiv.org/abs/2006.15595, Eq. 8 and 11; buckets of `t5_bucket`. There are two variants of
    the [CLS] reset, which give different models::

        reset="paper"           [CLS] row and column hold theta1 and theta2 alone (Eq. 11)
        reset="reference-code"  they hold theta1 + b_row and theta2 + b_column, with two more learned numbers per head,
                                b_row being table row ``buckets / 2``, which no distance reaches

    The result is the `LowRankBias` of TUPE-A plus the `ToeplitzBias` of the distances; the low-rank part, which has
    features for the [CLS] row and column, subtracts there what the Toeplitz part adds. The relative table is not
    scaled, as in the authors' code; `T5` alone scales its own by sqrt(head_dim).

    Args:
        width: model channels, C; a multiple of heads.
        heads: H; positive.
        max_positions: longest text in tokens; positive.
        cls: "position-0" unties the token at position 0, for texts that begin with [CLS]; "none" unties nothing.
        theta: the source of theta1 and theta2, "table-rows" or "free"; read only with ``cls="position-0"``.
        reset: "paper", or "reference-code" for the released checkpoint; read only with ``cls="position-0"``.
        buckets: rows of the relative table; even and at least 4 where bidirectional, else at least 2.
        max_distance: from here on all distances share a bucket, in tokens.
        projection_bias: whether U_Q and U_K have biases.
        norm_eps: epsilon of the layer norm; 1e-5 as in the reference code.
        bidirectional: separate buckets for left and right; False in decoders.

    Shape:
        positions (B or 1, T) and (B or 1, S) -> bias (B or 1, H, T, S), dtype of the parameters.

    Raises:
        ValueError: an argument is out of range, or a position is outside the table.
    """

    purpose = "learned relative positions"

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        max_positions: int,
        cls: CLS = "none",
        theta: Theta = "table-rows",
        reset: Reset = "paper",
        buckets: int = 32,
        max_distance: int = 128,
        projection_bias: bool = True,
        norm_eps: float = 1e-5,
        bidirectional: bool = True,
    ) -> None:
        super().__init__(
            width,
            heads=heads,
            max_positions=max_positions,
            cls=cls,
            theta=theta,
            projection_bias=projection_bias,
            norm_eps=norm_eps,
        )
        check_choice("reset", reset, Reset)
        if reset == "reference-code" and not bidirectional:
            raise ValueError(
                "reset='reference-code' needs bidirectional=True: it gives [CLS] the table row that no distance reaches"
            )
        if cls == "none" and reset != "paper":
            raise ValueError(f"reset={reset!r} gives [CLS] its scores: set cls='position-0' too, or leave reset out")
        self.reset = reset
        self.relative = T5(heads, scale=1.0, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
        if cls == "position-0" and reset == "reference-code":
            self.others_to_cls = nn.Parameter(torch.zeros(1, heads))  # a row of the table, drawn like one

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        row = (self.others_to_cls,) if hasattr(self, "others_to_cls") else ()
        return (*super().zero_init_parameters(), *self.relative.zero_init_parameters(), *row)

    def maps(self, positions: Positions) -> dict[str, Tensor]:
        """Return the matrices for a figure: the "absolute" part, the "relative" part, and the "sum" with the reset."""
        both, device = (positions, positions), _device_of(self)
        return {
            "absolute": self._correlation(*both, device, TUPE._cls_scores(self, *both, device)).dense(),
            "relative": self.relative(*both).dense(),
            "sum": self(*both).dense(),
        }

    def cost_parts(self) -> dict[str, int]:
        extra = self.others_to_cls.numel() if hasattr(self, "others_to_cls") else 0
        return {**super().cost_parts(), "relative table": self.relative.table.weight.numel() + extra}

    def _bias(self, query: Positions, key: Positions, device: torch.device) -> Bias:
        return super()._bias(query, key, device) + self.relative(query, key, device=device)

    def _cls_scores(self, query: Positions, key: Positions, device: torch.device) -> tuple[Tensor, Tensor] | None:
        of_positions = super()._cls_scores(query, key, device)
        if of_positions is None:
            return None
        row_BHS, column_BHT = of_positions
        if self.reset == "reference-code":
            unreached_1 = torch.full((1,), self.relative.buckets // 2, device=device)
            row_BHS = row_BHS + self.relative.table(unreached_1)[..., None]
            column_BHT = column_BHT + self.others_to_cls[..., None]
        # [CLS] is at position 0: key j is at distance p_j from it, and it is at distance -p_i from query i
        row_BHS = row_BHS - self.relative.at_distance(key.index_BT(device)).transpose(0, 1)
        column_BHT = column_BHT - self.relative.at_distance(-query.index_BT(device)).transpose(0, 1)
        return row_BHS, column_BHT


def _device_of(encoding: nn.Module) -> torch.device:
    return next(encoding.parameters()).device


def _join(*parts: Tensor) -> Tensor:
    """Concatenate along the last axis, after broadcasting the others."""
    rows, heads, tokens, _ = (max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True))
    return torch.cat([part.expand(rows, heads, tokens, -1) for part in parts], dim=-1)
