"""PaTH attention: each token reflects or shrinks one direction of all keys before it."""

# torch.linalg is typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import ContentTerm, OnScoresByInput, TokenFeatures, check_positive
from wordorder.ops import Arbitrary, Bias, Contiguous, DenseBias, Mask, Positions
from wordorder.ops.execution import no_autocast
from wordorder.ops.positions import gather_tokens

CHUNK = 64
"""Tokens whose matrices are multiplied at a time, L."""


class PaTH(OnScoresByInput):
    """Multiply each key by a matrix of every token after it, up to the query, that shrinks or reflects one direction.

    Yang et al. 2025, "PaTH attention: position encoding via accumulating Householder transformations",
    https://arxiv.org/abs/2505.16381, with x_t the input of the layer's attention (after its norm), and maps U (to
    ``rank`` channels), W_h, u_h and b_h of each layer's own::

        w_t = W_h U x_t / |W_h U x_t|,    beta_t = 2 sigmoid(u_h . x_t + b_h)
        H_t = I - beta_t w_t w_t^T
        score[h, i, j] = scale * q_i . H_i H_(i-1) .. H_(j+1) k_j,     j <= i

    The matrix of the token right after the key comes first, that of the query's own token last. The term is what they
    change: ``scale * q_i . (H_i .. H_(j+1) - I) k_j``. Rotations act on ``scale * q_i . k_j`` alone: in ``rope+path``
    the term is of queries and keys before them. ``path+fox`` is the paper's PaTH-FoX.

    Products are taken in at least float32, of L = 64 tokens at a time (the WY representation of Householder matrices):
    time O((T + L) S (D + L)) for T queries and S keys of a head; a step with a cache multiplies all matrices of the
    text anew. The term is written out, B H T S numbers, and training keeps two more matrices of that size (at D = 64).
    A cache holds w before its division and beta before its sigmoid, in the dtype of their maps: H (D + 1) numbers a
    token. `torch.export`, which leaves lengths open, takes all tokens at a time: L = S.

    Differs from the paper: w has no short convolution, by which a window would see tokens beyond it. The published code
    has w and beta of each key head, and one map in place of W U where key heads are fewer; here they are of each query
    head. It changes the keys in its cache at each step, O(S D) a head.

    Args:
        width: channels of the layer's input, C; positive.
        heads: H; positive.
        head_dim: channels per head, D; positive.
        layers: number of maps of each kind; positive.
        rank: channels between U and W; positive. The paper's code has 32.
        from_zero: multiply the term by a learned number of each layer and head that starts at 0, so that a trained
            model begins as it was.

    Shape:
        x (B, T, C) -> w (B, H, T, D), beta (B, H, T, 1) -> term (B, H, T, S) in at least float32.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "positions that follow content"
    paper = "Yang et al. 2025, https://arxiv.org/abs/2505.16381"
    refused_in: ClassVar[Mapping[str, str]] = {
        "encoder": "it multiplies a key by the matrices of the tokens after it, and the paper defines no product for"
        " keys to the right of their query. Take 'deberta', 'shaw' or 'transformer-xl'",
        "cross-attention": "it multiplies the matrices of all tokens between key and query, which stand in one text",
        "memory": "a slot would need the matrices of all tokens since, which a memory need not keep; take 'fox'",
        "right": "slots of such a memory attend to keys to their right, for which the paper defines no product",
    }

    def __init__(
        self, width: int, *, heads: int, head_dim: int, layers: int, rank: int = 32, from_zero: bool = False
    ) -> None:
        super().__init__()
        check_positive(width=width, heads=heads, head_dim=head_dim, layers=layers, rank=rank)
        self.heads, self.head_dim = heads, head_dim
        self.directions = nn.ModuleList(
            nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, heads * head_dim, bias=False))
            for _ in range(layers)
        )
        self.betas = nn.ModuleList(nn.Linear(width, heads) for _ in range(layers))
        self.strength = nn.Parameter(torch.zeros(layers, heads)) if from_zero else None

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """Return the strengths; without ``from_zero`` there is no start at 0 that can be learned from."""
        return () if self.strength is None else (self.strength,)

    def cost_parts(self) -> dict[str, int]:
        parts = {"w": self.directions, "beta": self.betas}
        counts = {name: sum(parameter.numel() for parameter in part.parameters()) for name, part in parts.items()}
        return counts if self.strength is None else {**counts, "strength": self.strength.numel()}

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "PaTHTerm":
        """Return the term, which reads the input of each layer; positions come with the keys (`with_features`)."""
        return PaTHTerm(self, self.strength)


@dataclass(frozen=True)
class PaTHTerm(ContentTerm):
    """The term of PaTH in one forward pass and one layer."""

    encoding: PaTH
    strength: Tensor | None
    """The numbers of a zero start, (layers, H)."""
    index: int = 0
    direction_BHSD: Tensor | None = None
    """The directions w of all keys, of any length."""
    logit_BHS1: Tensor | None = None
    """The argument of beta's sigmoid."""
    positions: tuple[Positions, Positions] | None = None

    def layer(self, index: int) -> "PaTHTerm":
        return replace(self, index=index)

    def features(self, x_BTC: Tensor) -> TokenFeatures:
        """Return w of each token, of any length, and the argument of beta's sigmoid."""
        of_token_BTHF = (
            torch.unflatten(maps[self.index](x_BTC), -1, (self.encoding.heads, -1))
            for maps in (self.encoding.directions, self.encoding.betas)
        )
        direction_BHTD, logit_BHT1 = (feature.transpose(1, 2) for feature in of_token_BTHF)
        return TokenFeatures({}, {"directions": direction_BHTD, "beta_logits": logit_BHT1})

    def with_features(self, features: TokenFeatures, positions: tuple[Positions, Positions] | None) -> "PaTHTerm":
        direction_BHSD, logit_BHS1 = (features.of_keys[name] for name in ("directions", "beta_logits"))
        return replace(self, direction_BHSD=direction_BHSD, logit_BHS1=logit_BHS1, positions=positions)

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None, *, rotated: bool
    ) -> tuple[Tensor | None, Bias]:
        """Return None and the term written out, 0 for keys at their query's place or to its right."""
        del rotated
        assert self.direction_BHSD is not None
        assert self.logit_BHS1 is not None
        direction_BHSD, wide = self.direction_BHSD, torch.promote_types(q_BHTD.dtype, torch.float32)
        if isinstance(visible, Mask) and visible.tokens_BS is not None:  # padding between tokens changes no key
            direction_BHSD = direction_BHSD.masked_fill(~visible.tokens_BS[:, None, :, None], 0)
        query, key = self.positions or (None, None)
        with no_autocast(q_BHTD.device):
            w_BHSD = F.normalize(direction_BHSD.to(wide), dim=-1)
            beta_BHS1 = 2 * self.logit_BHS1.to(wide).sigmoid()
            q_BHTD, k_BHSD = scale * q_BHTD.to(wide), k_BHSD.to(wide)
            if isinstance(key, Arbitrary):
                order_BS = key.index_BT(q_BHTD.device).argsort(dim=-1, stable=True)
                column_BS = order_BS.argsort(dim=-1)
                k_BHSD, w_BHSD, beta_BHS1 = (gather_tokens(x, order_BS, axis=2) for x in (k_BHSD, w_BHSD, beta_BHS1))
                column_BT = column_BS[:, -q_BHTD.shape[2] :]
                ordered_BHTS = changed_by_products(q_BHTD, k_BHSD, w_BHSD, beta_BHS1, column_BT, None)
                term_BHTS = gather_tokens(ordered_BHTS, column_BS, axis=3)
            else:
                columns = _columns(query, key, q_BHTD.shape[2], k_BHSD.shape[2], q_BHTD.device)
                term_BHTS = changed_by_products(q_BHTD, k_BHSD, w_BHSD, beta_BHS1, *columns)
            if self.strength is not None:
                term_BHTS = term_BHTS * self.strength[self.index][:, None, None]
        return None, DenseBias(term_BHTS, may_hide=False)


def changed_by_products(
    q_BHTD: Tensor, k_BHSD: Tensor, w_BHSD: Tensor, beta_BHS1: Tensor, column_BT: Tensor, first: int | None
) -> Tensor:
    """Return ``q_i . H_i .. H_(j+1) k_j - q_i . k_j``, 0 for j >= i: (B, H, T, S), in the dtype of the arguments.

    Bischof and Van Loan 1987, "The WY representation for products of Householder matrices",
    https://doi.org/10.1137/0908009. Of a chunk of tokens with rows K and W and factors beta, "low" being what is below
    the diagonal, and a query that comes to its end::

        M = I + low(diag(beta) W W^T),    E = M^-1 low(diag(beta) W K^T),    V = M^-1 diag(beta) W
        a = W q, 0 for tokens after the query's own
        q . H .. H_(j+1) k_j = q . k_j - (a E)_j
        q is q - a V before the chunk

    So a query goes back through the text, chunk by chunk, and meets the keys of each.

    Args:
        q_BHTD: queries.
        k_BHSD: keys, in the order of the text.
        w_BHSD: directions, of length 1, or 0 for tokens without a matrix.
        beta_BHS1: factors.
        column_BT: the queries' columns among the keys, (1 or B, T).
        first: the first of these where they follow each other and are the same in all rows; None = unknown.
    """
    queries, keys = q_BHTD.shape[2], k_BHSD.shape[2]
    size = min(CHUNK, keys)
    count = -(-keys // size)
    if torch.compiler.is_exporting():  # lengths stay open: no loop over them
        size, count = keys, 1
    k_BHNLD, w_BHNLD, beta_BHNL1 = (_in_chunks(x, count, size) for x in (k_BHSD, w_BHSD, beta_BHS1))
    scaled_BHNLD = beta_BHNL1 * w_BHNLD
    low_w_BHNLL, low_k_BHNLL = ((scaled_BHNLD @ x.transpose(-1, -2)).tril(-1) for x in (w_BHNLD, k_BHNLD))
    right_BHNLX = torch.cat((low_k_BHNLL, scaled_BHNLD), dim=-1)
    solved_BHNLX = torch.linalg.solve_triangular(low_w_BHNLL, right_BHNLX, upper=False, unitriangular=True)
    e_BHNLL, v_BHNLD = solved_BHNLX[..., :size], solved_BHNLX[..., size:]
    # one split of each, whose gradient is one cat
    k, w, e, v = (x.unbind(dim=2) for x in (k_BHNLD, w_BHNLD, e_BHNLL, v_BHNLD))

    columns: list[Tensor] = []
    change_BHRD = q_BHTD[:, :, :0]  # of the last R queries by the chunks after this one
    for n in reversed(range(count)):
        # the chunk's own queries join those of later chunks; earlier ones never come to it
        row = 0 if n == 0 or first is None else min(max(n * size - first, 0), queries)
        change_BHRD = F.pad(change_BHRD, (0, 0, queries - row - change_BHRD.shape[2], 0))
        a_BHRL = (q_BHTD[:, :, row:] + change_BHRD) @ w[n].transpose(-1, -2)
        token_L = torch.arange(n * size, (n + 1) * size, device=q_BHTD.device)
        a_BHRL = a_BHRL.masked_fill(token_L > column_BT[:, None, row:, None], 0)
        columns.append(F.pad(change_BHRD @ k[n].transpose(-1, -2) - a_BHRL @ e[n], (0, 0, row, 0)))
        change_BHRD = change_BHRD - a_BHRL @ v[n]
    return torch.cat(columns[::-1], dim=-1)[..., :keys]


def _in_chunks(x_BHSF: Tensor, count: int, size: int) -> Tensor:
    """Return tokens in chunks (B, H, N, L, F), the last of which is filled up with 0."""
    filled_BHXF = F.pad(x_BHSF, (0, 0, 0, count * size - x_BHSF.shape[2]))
    return torch.unflatten(filled_BHXF, 2, (count, size))


def _columns(
    query: Positions | None, key: Positions | None, queries: int, keys: int, device: torch.device
) -> tuple[Tensor, int | None]:
    """Return the queries' columns among the keys, (1 or B, T), and the first of them where it is a known number.

    Queries are keys too: of the same positions, else the last ones.
    """
    first: int | Tensor = keys - queries
    if keys != queries and isinstance(query, Contiguous) and isinstance(key, Contiguous):
        first = query.offset - key.offset
    column_T = torch.arange(queries, device=device)
    if isinstance(first, Tensor):
        return first.to(device)[:, None] + column_T, None
    return (column_T + first)[None], first
