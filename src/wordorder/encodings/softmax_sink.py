"""A softmax sink: a learned number in each softmax's denominator, so that a head may attend to nothing."""

import math

import torch
from torch import nn

from wordorder.encodings.places import Generators, OnDenominator, SinkTerm, check_positive
from wordorder.ops import Positions


class SoftmaxSink(OnDenominator):
    """Add a learned exp(s) to the denominator of each softmax, for each layer and head.

    The form of gpt-oss (OpenAI 2025, https://arxiv.org/abs/2508.10925, Sec. 2.2; transformers, ``models/gpt_oss``,
    ``sinks``), after "attention is off by one" (Miller 2023), where s = 0 is fixed::

        weight[h, i, j] = exp(score[h, i, j]) / (exp(s_h) + sum over k of exp(score[h, i, k]))

    A head whose scores are low gives little, where a softmax must give something. It knows no order, and composes with
    encodings that do ("rope+softmax-sink"). Computed from the log-sum-exp, as ``sigmoid(lse - s_h)`` times the output
    without it, so that every backend that returns that has it, with its gradient; attention weights sum to less than 1.

    Args:
        heads: H; positive.
        layers: number of layers that have it; positive.
        first_logit: the number s before training; -10 begins with almost no sink. Finite.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "beside another encoding"
    paper = "OpenAI 2025, https://arxiv.org/abs/2508.10925"

    def __init__(self, *, heads: int, layers: int, first_logit: float = 0.0) -> None:
        super().__init__()
        check_positive(heads=heads, layers=layers)
        if not math.isfinite(first_logit):
            raise ValueError(f"first_logit must be finite, got {first_logit}")
        self.heads, self.first_logit = heads, first_logit
        self.logits = nn.Parameter(torch.full((layers, heads), float(first_logit)))

    def draw_parameters(self, std: float, generator_for: Generators | None = None) -> None:
        """Set every s to its first value; `networks.initialise` calls it."""
        del std, generator_for
        nn.init.constant_(self.logits, self.first_logit)

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> SinkTerm:
        """Return the sinks of all layers; positions do not count."""
        del query, key, dtype, device
        return SinkTerm(self.logits)
