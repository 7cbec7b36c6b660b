"""Data-adaptive positional encoding (DAPE): a small network corrects a bias by what query and key contain."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.alibi import ALiBi
from wordorder.encodings.fire import FIRE
from wordorder.encodings.kerple import KERPLELog
from wordorder.encodings.places import (
    ContentTerm,
    Generators,
    OnScores,
    OnScoresByContent,
    check_choice,
    check_positive,
)
from wordorder.ops import Mask, Positions
from wordorder.ops.execution import no_autocast

Base = Literal["alibi", "kerple", "fire"]


class DAPE(OnScoresByContent):
    """Add a bias by distance, and what a small network makes of the bias and the products of all heads.

    Zheng et al. 2024, "DAPE: data-adaptive positional encoding for length extrapolation",
    https://arxiv.org/abs/2405.14722, Sec. 3, with the bias of ALiBi, KERPLE or FIRE, and x[i, j] the 2 H numbers of a
    pair in all heads::

        x[i, j] = (scale * q_i^1 . k_j^1, ..., scale * q_i^H . k_j^H, bias[1, i, j], ..., bias[H, i, j])
        term[h, i, j] = bias[h, i, j] + sum over m of outer[h, m] leaky_relu(inner[m] . x[i, j] + inner_bias[m])

    leaky_relu(x) is x, or x / 100 where x is negative. Each layer has a network of its own; the bias is computed once
    and shared by all layers.

    Differs from the paper: the network has no last bias, since softmax cancels a number that is added to a whole row;
    in the authors' code KERPLE and FIRE are of each layer, too. Where encodings act together, x holds the products of
    queries and keys before any rotation, and no other term of the scores.

    The paper's is a decoder's. With ALiBi and KERPLE an encoder cannot tell left from right; with FIRE it can.

    The network needs every pair, whatever the backend: time of 3 H ``inner`` multiplications for each, and memory of
    ``inner`` numbers for each, in every example and layer, which are kept for the backward pass.

    Args:
        heads: H; positive.
        layers: number of networks; positive.
        base: the bias: "alibi", which is fixed, or "kerple" or "fire", which are learned.
        inner: neurons of each network; positive, 32 in the paper.
        bidirectional: keys to the right are seen, and FIRE tells them from those to the left; False in decoders.

    Shape:
        q (B, H, T, D), k (B, H, S, D) -> term (B, H, T, S), at least float32.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "texts longer than in training"
    paper = "Zheng et al. 2024, https://arxiv.org/abs/2405.14722"

    def __init__(
        self, heads: int, *, layers: int, base: Base = "kerple", inner: int = 32, bidirectional: bool = True
    ) -> None:
        super().__init__()
        check_positive(heads=heads, layers=layers, inner=inner)
        check_choice("base", base, Base)
        self.heads = heads
        self.base: OnScores
        if base == "fire":
            self.base = FIRE(heads, bidirectional=bidirectional)
        else:
            self.base = ALiBi(heads) if base == "alibi" else KERPLELog(heads)
        self.inner_weight = nn.Parameter(torch.empty(layers, inner, 2 * heads))
        self.inner_bias = nn.Parameter(torch.empty(layers, inner))
        self.outer_weight = nn.Parameter(torch.empty(layers, heads, inner))
        self.draw_parameters(0.0)

    @property
    def position_dependent(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.position_dependent

    def draw_parameters(self, std: float, generator_for: Generators | None = None) -> None:
        """Draw the networks as torch draws linear layers, U(-1/sqrt(n), 1/sqrt(n)) for n inputs.

        `networks.initialise` calls it; with BERT's N(0, 0.02) in both layers they would start flat.
        """
        del std
        inputs = {"inner_weight": 2 * self.heads, "inner_bias": 2 * self.heads}
        inputs["outer_weight"] = self.outer_weight.shape[-1]
        for name, count in inputs.items():
            bound = 1 / math.sqrt(count)
            nn.init.uniform_(self.get_parameter(name), -bound, bound, generator=generator_for and generator_for(name))

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """Return the outer weights and those that make the bias 0; none with ALiBi and KERPLE, which are never 0."""
        of_base = self.base.zero_init_parameters()
        return (self.outer_weight, *of_base) if of_base else ()

    def cost_parts(self) -> dict[str, int]:
        count = sum(parameter.numel() for parameter in self.parameters(recurse=False))
        return {"networks": count, **self.base.cost_parts()}

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "DAPETerm":
        """Return the term with the bias written out, and the networks of all layers."""
        device = device or self.inner_weight.device
        wide = torch.promote_types(torch.promote_types(dtype, self.inner_weight.dtype), torch.float32)
        with no_autocast(device):
            bias_BHTS = self.base(query, key, dtype=wide, device=device).written_out(wide)
        return DAPETerm(bias_BHTS, self.inner_weight, self.inner_bias, self.outer_weight)


@dataclass(frozen=True)
class DAPETerm(ContentTerm):
    """The term of DAPE in one forward pass and one layer."""

    bias_BHTS: Tensor
    """(1 or B, H, T, S), at least float32."""
    inner_weight_LMN: Tensor
    """Weights of all layers, with N = 2 H inputs: the products first, then the bias."""
    inner_bias_LM: Tensor
    outer_weight_LHM: Tensor
    index: int = 0

    def layer(self, index: int) -> "DAPETerm":
        return replace(self, index=index)

    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None) -> Tensor:
        """Return the term at all pairs: it is finite at hidden ones, too, where no gradient comes back."""
        del visible
        wide = torch.promote_types(q_BHTD.dtype, self.bias_BHTS.dtype)
        with no_autocast(q_BHTD.device):
            weights = (self.inner_weight_LMN, self.inner_bias_LM, self.outer_weight_LHM)
            inner_MN, inner_bias_M, outer_HM = (weight[self.index].to(wide) for weight in weights)
            of_products_MH, of_bias_MH = inner_MN.chunk(2, dim=1)
            products_BHTS = (scale * q_BHTD.to(wide)) @ k_BHSD.to(wide).transpose(-1, -2)
            bias_BHTS = self.bias_BHTS.to(wide)
            inner_BMTS = torch.einsum("mh,bhts->bmts", of_bias_MH, bias_BHTS) + inner_bias_M[:, None, None]
            inner_BMTS = inner_BMTS + torch.einsum("mh,bhts->bmts", of_products_MH, products_BHTS)
            return bias_BHTS + torch.einsum("hm,bmts->bhts", outer_HM, F.leaky_relu(inner_BMTS, inplace=True))
