"""Forgetting attention (FoX): a gate for each token and head says how much of the text before it is forgotten."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import ContentTerm, OnScoresByInput, TokenFeatures, check_positive
from wordorder.ops import Bias, Contiguous, DenseBias, LowRankBias, Mask, Packed, Positions, running_sum
from wordorder.ops.execution import no_autocast

_BETWEEN = "it sums the gates of all tokens between query and key, which "


class Fox(OnScoresByInput):
    """Subtract from each score what the gates of the tokens between query and key forget.

    Lin et al. 2025, "Forgetting Transformer: softmax attention with a forget gate", https://arxiv.org/abs/2503.02130,
    Eq. 5 to 7, with x_t the input of the layer's attention (after its norm) and a map of each layer's own::

        log f[h, t] = log sigmoid(w_h . x_t + b_h + first_bias)
        bias[h, i, j] = sum of log f[h, l] over l = j + 1 .. i,     j <= i

    Two-sided (encoders; `x-transformers` has the same as DataDependentAlibi) with gates g of their own for the right::

        bias[h, i, j] = sum of log g[h, l] over l = i .. j - 1,     j > i

    Sums are in at least float32: the bias is a difference of two running sums, each of which reaches hundreds.

    Differs from the paper: b_h starts at 0 and ``first_bias`` is added, so that all biases of a network start alike.

    Args:
        width: channels of the layer's input, C; positive.
        heads: H; positive.
        layers: number of maps; positive.
        bidirectional: keys to the right are seen, with gates of their own; False in decoders.
        first_bias: added to the gate's argument. 5 starts with gates of 0.993, which forget half in 100 tokens. Finite.
        from_zero: multiply log f by a learned number of each layer and head that starts at 0, so that a trained model
            begins as it was. (A large ``first_bias`` would do too, but there its gradient is 0.)

    Shape:
        x (B, T, C) -> gates (B, H, T, 1), 2 with ``bidirectional``, at least float32 -> bias (B, H, T, S).

    Raises:
        ValueError: an argument is out of range.
    """

    reads_queries_and_keys = False
    purpose = "positions that follow content"
    paper = "Lin et al. 2025, https://arxiv.org/abs/2503.02130"
    refused_in: ClassVar[Mapping[str, str]] = {
        "cross-attention": f"{_BETWEEN}stand in one text",
        "right": f"{_BETWEEN}a slot that looks to its right does not see",
    }

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        layers: int,
        bidirectional: bool = False,
        first_bias: float = 5.0,
        from_zero: bool = False,
    ) -> None:
        super().__init__()
        check_positive(width=width, heads=heads, layers=layers)
        if not math.isfinite(first_bias):
            raise ValueError(f"first_bias must be finite, got {first_bias}")
        self.heads, self.bidirectional, self.first_bias = heads, bidirectional, first_bias
        sides = 2 if bidirectional else 1
        self.gates = nn.ModuleList(nn.Linear(width, sides * heads) for _ in range(layers))
        self.strength = nn.Parameter(torch.zeros(layers, sides * heads)) if from_zero else None

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """Return the strengths; without ``from_zero`` there is no start at 0 that can be learned from."""
        return () if self.strength is None else (self.strength,)

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "FoxTerm":
        """Return the term, which reads the input of each layer; positions come with the keys (`with_features`)."""
        return FoxTerm(self, self.strength)


@dataclass(frozen=True)
class FoxTerm(ContentTerm):
    """The term of FoX in one forward pass and one layer."""

    encoding: Fox
    strength: Tensor | None
    """The numbers of a zero start, (layers, H or 2 H)."""
    index: int = 0
    log_gates_BHSF: Tensor | None = None
    """The logarithms of the gates of all keys: log f, then log g where bidirectional, (B, H, S, 1 or 2)."""
    positions: tuple[Positions, Positions] | None = None

    @property
    def low_rank(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 0 if self.encoding.bidirectional else 2

    def layer(self, index: int) -> "FoxTerm":
        return replace(self, index=index)

    def features(self, x_BTC: Tensor) -> TokenFeatures:
        """Return log f of each token, then log g where bidirectional: (B, H, T, 1 or 2), at least float32."""
        gate_BTH: Tensor = self.encoding.gates[self.index](x_BTC)
        with no_autocast(x_BTC.device):
            gate_BTH = gate_BTH.to(torch.promote_types(gate_BTH.dtype, torch.float32))
            log_BTH = F.logsigmoid(gate_BTH + self.encoding.first_bias)
            if self.strength is not None:
                log_BTH = log_BTH * self.strength[self.index]
        log_BTFH = torch.unflatten(log_BTH, -1, (-1, self.encoding.heads))
        return TokenFeatures({}, {"log_gates": log_BTFH.movedim(-1, 1)})

    def with_features(self, features: TokenFeatures, positions: tuple[Positions, Positions] | None) -> "FoxTerm":
        return replace(self, log_gates_BHSF=features.of_keys["log_gates"], positions=positions)

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None, *, rotated: bool
    ) -> tuple[Tensor | None, Bias]:
        """Return None and the bias: of low rank where keys stand on the left alone, else written out."""
        assert self.log_gates_BHSF is not None
        log_gates_BHSF = self.log_gates_BHSF
        if isinstance(visible, Mask) and visible.tokens_BS is not None:  # padding between tokens forgets nothing
            log_gates_BHSF = log_gates_BHSF.masked_fill(~visible.tokens_BS[:, None, :, None], 0)
        of_left, of_right = log_gates_BHSF[..., 0], log_gates_BHSF[..., 1:]
        query, key = self.positions or (None, None)
        with no_autocast(of_left.device):
            sum_BHS = running_sum(of_left, key)
            at_query_BHT = _at_queries(sum_BHS, query, key, q_BHTD.shape[2])
            if not self.encoding.bidirectional:
                query_BHT2 = torch.stack((at_query_BHT, torch.ones_like(at_query_BHT)), dim=-1)
                return None, LowRankBias(query_BHT2, torch.stack((torch.ones_like(sum_BHS), -sum_BHS), dim=-1))
            left_BHTS = at_query_BHT[..., None] - sum_BHS[:, :, None]
            before_BHS = running_sum(of_right[..., 0], key) - of_right[..., 0]  # the own token left out
            right_BHTS = before_BHS[:, :, None] - _at_queries(before_BHS, query, key, q_BHTD.shape[2])[..., None]
            is_left_B1TS = _is_left(query, key, q_BHTD.shape[2], k_BHSD.shape[2], of_left.device)
            return None, DenseBias(torch.where(is_left_B1TS, left_BHTS, right_BHTS), may_hide=False)


def _at_queries(of_keys_BHS: Tensor, query: Positions | None, key: Positions | None, queries: int) -> Tensor:
    """Return the numbers of the queries, which are keys too: of the same positions, else the last ones."""
    keys = of_keys_BHS.shape[-1]
    if keys == queries or not (isinstance(query, Contiguous) and isinstance(key, Contiguous)):
        return of_keys_BHS[..., keys - queries :]
    first = query.offset - key.offset
    if isinstance(first, int):
        return of_keys_BHS[..., first : first + queries]
    column_B1T = (first.to(of_keys_BHS.device)[:, None] + torch.arange(queries, device=of_keys_BHS.device))[:, None]
    return of_keys_BHS.gather(-1, column_B1T.expand(*of_keys_BHS.shape[:2], -1))


def _is_left(query: Positions | None, key: Positions | None, queries: int, keys: int, device: torch.device) -> Tensor:
    """Tell which keys stand at a query's position or before it, bool (1 or B, 1, T, S)."""
    if query is None or key is None or isinstance(key, Packed):  # in packed texts by column: other texts are hidden
        query, key = Contiguous(queries, keys - queries), Contiguous(keys)
    return key.index_BT(device)[:, None, None] <= query.index_BT(device)[:, None, :, None]
