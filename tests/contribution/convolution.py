"""A change of the layers' input in one file: a depthwise convolution over neighbouring rows."""

from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor, nn

from wordorder.encodings import InputTerm, OnLayerInput
from wordorder.ops import Packed, Positions


class Convolution(OnLayerInput):
    """Add sum_m w[m] x[t - m] channel by channel, over the rows before t, and in encoders those after it too."""

    paper = "Allen-Zhu 2025, https://arxiv.org/abs/2512.17351"
    refused_in = MappingProxyType({"cross-attention": "the rows of two texts are no neighbours"})

    def __init__(self, width: int, *, layers: int, bidirectional: bool = True, reach: int = 3) -> None:
        super().__init__()
        self.weights = nn.ModuleList(nn.Embedding(reach * (1 + bidirectional), width) for _ in range(layers))
        self.reach, self.bidirectional = reach, bidirectional

    def forward(self, query, key, *, dtype=torch.float32, device=None) -> "ConvolutionTerm":
        return ConvolutionTerm(self, query)


@dataclass(frozen=True)
class ConvolutionTerm(InputTerm):
    """The convolution in one forward pass and one layer."""

    encoding: Convolution
    positions: Positions
    index: int = 0

    @property
    def rows_before(self) -> int:
        return self.encoding.reach

    def layer(self, index: int) -> "ConvolutionTerm":
        return replace(self, index=index)

    def added(self, x_BNC: Tensor) -> Tensor:
        numbers = torch.arange(self.encoding.reach * (1 + self.encoding.bidirectional), device=x_BNC.device)
        weights_MC = self.encoding.weights[self.index](numbers).type_as(x_BNC)
        added_BNC = torch.zeros_like(x_BNC)
        for m, weights_C in enumerate(weights_MC):
            steps = m + 1 if m < self.encoding.reach else self.encoding.reach - m - 1  # to the right: negative
            added_BNC = added_BNC + weights_C * self._shifted(x_BNC, steps)
        return added_BNC

    def _shifted(self, x_BNC: Tensor, steps: int) -> Tensor:
        """Return for each row the one ``steps`` before it, 0 where there is none in its text."""
        rows = x_BNC.shape[1]
        source_N = torch.arange(rows, device=x_BNC.device) - steps
        inside_N = (source_N >= 0) & (source_N < rows)
        source_N = source_N.clamp(0, rows - 1)
        if isinstance(self.positions, Packed):
            sequence_BN = self.positions.sequence_BT
            inside_N = inside_N & (sequence_BN == sequence_BN[:, source_N])
        return x_BNC[:, source_N].masked_fill(~inside_N.expand(x_BNC.shape[:2])[..., None], 0)
