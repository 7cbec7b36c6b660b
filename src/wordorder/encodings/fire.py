"""Functional interpolation for relative positions (FIRE): a small network of the relative distance."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import Generators, OnScores, check_positive
from wordorder.ops import DenseBias, Positions
from wordorder.ops.positions import distances_BTS

NEVER_ZERO = 1e-6
"""c and L are kept this far from 0, where the share would be 0 / 0; the authors' code adds it to the denominator."""


class FIRE(OnScores):
    """Add a learned function of the distance, divided by the length of the text up to the query.

    Li et al. 2024, "Functional interpolation for relative positions improves long context Transformers",
    https://arxiv.org/abs/2310.04418, Sec. 3, for a key that is not to the right of its query (j <= i)::

        bias[h, i, j] = f_h(psi(i - j) / psi(max(L, i))),    psi(x) = log(c x + 1)
        f_h(x) = sum_m outer[h, m] relu(inner[m] x + inner_bias[m])

    The share is between 0 and 1 however long the text grows, so that f is never evaluated outside of
    the range that it was trained on ("progressive interpolation"); L keeps short texts from being stretched. c and L
    are learned. The paper has one function per layer, and FIRE-S with one for all layers; here a content-independent
    bias is computed once and shared by all layers, so this is FIRE-S.

    Differs from the paper:

    - A key to the right (encoders, slots of a look-ahead memory) has no share there. Here it is
      ``-psi(j - i) / psi(max(L, j))`` with ``bidirectional``: of the same size as from j back to i, and of the other
      sign, so that f, which is drawn on both sides, tells left from right. Without it (decoders, where those keys are
      hidden) the sign is left out.
    - f has no last bias: softmax cancels a number that is added to a whole row of scores.
    - c counts as |c|, and L as |threshold| * ``first_threshold`` with threshold = 1 at first, as in the authors' code.

    Memory is the paper's: the term is no Toeplitz matrix, since it depends on i, and f's inner layer holds ``inner``
    numbers per pair of tokens while it is computed, once per forward. With a memory of earlier segments i is the
    position in the window (the oldest slot is 0), so that shares are those of what can be seen.

    Args:
        heads: H; positive.
        inner: neurons of f, M; positive, 32 in the paper.
        first_c: initial c, per token; positive, 0.1 in the authors' code.
        first_threshold: initial L, in tokens; positive, 512 in the authors' code.
        bidirectional: keys to the right get the negative share; False in decoders.

    Shape:
        positions (B or 1, T) and (B or 1, S) -> bias (B or 1, H, T, S), at least float32.

    Raises:
        ValueError: an argument is not positive.
    """

    purpose = "texts longer than in training"
    paper = "Li et al. 2024, https://arxiv.org/abs/2310.04418"
    position_dependent = True

    def __init__(
        self,
        heads: int,
        *,
        inner: int = 32,
        first_c: float = 0.1,
        first_threshold: float = 512.0,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        check_positive(heads=heads, inner=inner, first_c=first_c, first_threshold=first_threshold)
        self.heads = heads
        self.first_c, self.first_threshold, self.bidirectional = first_c, first_threshold, bidirectional
        self.c, self.threshold = nn.Parameter(torch.empty(1)), nn.Parameter(torch.empty(1))
        self.inner_weight, self.inner_bias = nn.Parameter(torch.empty(inner)), nn.Parameter(torch.empty(inner))
        self.outer_weight = nn.Parameter(torch.empty(heads, inner))
        self.draw_parameters(0.0)

    def draw_parameters(self, std: float, generator_for: Generators | None = None) -> None:
        """Draw the initial values; `networks.initialise` calls it, which has one rule for all other parameters.

        The function is drawn as torch draws linear layers, U(-1/sqrt(n), 1/sqrt(n)) for n inputs, as in the authors'
        code: with BERT's N(0, 0.02) in both of its layers it would start flat, and learn slowly from there.

        Args:
            generator_for: random generator by the parameter's name; None = torch's global one.
        """
        del std
        nn.init.constant_(self.c, self.first_c)
        nn.init.ones_(self.threshold)
        bounds = {"inner_weight": 1.0, "inner_bias": 1.0, "outer_weight": 1 / math.sqrt(self.outer_weight.shape[1])}
        for name, bound in bounds.items():
            generator = generator_for(name) if generator_for else None
            nn.init.uniform_(self.get_parameter(name), -bound, bound, generator=generator)

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> DenseBias:
        """Return the function of every pair's share, (B or 1, H, T, S)."""
        device = device or self.c.device
        wide = torch.promote_types(torch.promote_types(dtype, self.c.dtype), torch.float32)
        distance_BTS = distances_BTS(query, key, device)
        later_BTS = torch.maximum(query.index_BT(device)[:, :, None], key.index_BT(device)[:, None, :])
        c = self.c.to(wide).abs().clamp(min=NEVER_ZERO)
        threshold = (self.threshold.to(wide).abs() * self.first_threshold).clamp(min=NEVER_ZERO)
        longest_BTS = torch.maximum(later_BTS.to(wide), threshold)
        share_BTS = torch.log1p(c * distance_BTS.abs()) / torch.log1p(c * longest_BTS)
        if self.bidirectional:
            share_BTS = torch.where(distance_BTS > 0, -share_BTS, share_BTS)
        weights = (w.to(wide) for w in (self.inner_weight, self.inner_bias, self.outer_weight))
        inner_weight_M, inner_bias_M, outer_weight_HM = weights
        inner_BTSM = F.relu(share_BTS[..., None] * inner_weight_M + inner_bias_M)
        return DenseBias(F.linear(inner_BTSM, outer_weight_HM).movedim(-1, 1), may_hide=False)

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """Return the outer weights: they have a gradient at 0, and all others as soon as these are not 0."""
        return (self.outer_weight,)

    def cost_parts(self) -> dict[str, int]:
        """Return the number of parameters of the function, c and L included."""
        return {"function": sum(parameter.numel() for parameter in self.parameters())}
