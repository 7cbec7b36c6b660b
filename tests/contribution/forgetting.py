"""A term by the layer's input in one file: a causal forget gate."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from wordorder.encodings import ContentTerm, OnScoresByInput, TokenFeatures
from wordorder.ops import LowRankBias, running_sum


class Forgetting(OnScoresByInput):
    """Add the sum of log sigmoid(w_h . x_t + b_h) over the tokens t after the key, up to the query."""

    paper = "Lin et al. 2025, https://arxiv.org/abs/2503.02130"
    refused_in = dict.fromkeys(("encoder", "cross-attention", "right"), "a gate forgets what stands to its left")

    def __init__(self, width: int, *, heads: int, layers: int, first_bias: float = 5.0) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(width, heads) for _ in range(layers))
        self.first_bias = first_bias  # added to biases that are drawn as 0

    def forward(self, query, key, *, dtype=torch.float32, device=None) -> "ForgettingTerm":
        return ForgettingTerm(self)


@dataclass(frozen=True)
class ForgettingTerm(ContentTerm):
    """The term in one forward pass and one layer."""

    encoding: Forgetting
    index: int = 0
    sum_BHS1: Tensor | None = None
    low_rank = 2

    def layer(self, index: int) -> "ForgettingTerm":
        return replace(self, index=index)

    def features(self, x_BTC: Tensor) -> TokenFeatures:
        gate_BTH = self.encoding.gates[self.index](x_BTC)
        wide_BTH = gate_BTH.to(torch.promote_types(gate_BTH.dtype, torch.float32)) + self.encoding.first_bias
        return TokenFeatures({}, {"forgetting": nn.functional.logsigmoid(wide_BTH).mT[..., None]})

    def with_features(self, features, positions) -> "ForgettingTerm":
        gates_BHS = features.of_keys["forgetting"][..., 0]  # cached keys, slots and tokens; the queries are the last T
        return replace(self, sum_BHS1=running_sum(gates_BHS, positions[1])[..., None])

    def as_bias(self, q_BHTD, k_BHSD, scale, visible, *, rotated):
        queries, one_BHS1 = q_BHTD.shape[2], torch.ones_like(self.sum_BHS1)
        of_queries = torch.cat((self.sum_BHS1[:, :, -queries:], one_BHS1[:, :, :queries]), dim=-1)
        return None, LowRankBias(of_queries, torch.cat((one_BHS1, -self.sum_BHS1), dim=-1))
