"""Attention with linear biases (ALiBi)."""

import math

import torch
from torch import Tensor

from wordorder.encodings.places import OnDistance, check_positive


class ALiBi(OnDistance):
    """Subtract from each score the distance times a slope that is fixed per head.

    Press et al. 2022, "Train short, test long", https://arxiv.org/abs/2108.12409, Sec. 3::

        bias[h, i, j] = -m_h |j - i|,    m_h = 2 ** (-8 (h + 1) / H)   for H a power of two

    For other H the slopes are those of the next smaller power of two and then every second one of the next larger,
    as in the authors' code. Differs from the paper: it is defined for decoders (j <= i); encoders use the symmetric
    form -m |i - j|, so an encoder with ALiBi cannot tell left from right. No parameters.

    Args:
        heads: H; positive.

    Shape:
        positions (B or 1, T) and (B or 1, S) -> bias (B or 1, H, T, S), at least float32.

    Raises:
        ValueError: heads is not positive.
    """

    purpose = "texts longer than in training"
    paper = "Press et al. 2022, https://arxiv.org/abs/2108.12409"

    def __init__(self, heads: int) -> None:
        super().__init__()
        check_positive(heads=heads)
        self.heads = heads

    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return ``-m_h |distance|``, (H, *shape), in at least float32."""
        wide, whole = torch.promote_types(dtype, torch.float32), 2 ** math.floor(math.log2(self.heads))
        slopes = [2 ** (-8 * (h + 1) / whole) for h in range(whole)]
        slopes += [2 ** (-8 * (h + 1) / (2 * whole)) for h in range(0, 2 * (self.heads - whole), 2)]
        slope_H = torch.tensor(slopes, device=distance.device, dtype=wide)
        return -slope_H.view(-1, *(1,) * distance.dim()) * distance.abs()
