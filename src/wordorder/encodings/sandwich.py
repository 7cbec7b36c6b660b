"""Inner products of sinusoidal positions as a bias (Sandwich)."""

import torch
from torch import Tensor

from wordorder.encodings.places import OnDistance, check_positive, check_sines


class Sandwich(OnDistance):
    """Add the inner product of the sinusoidal vectors of both positions, minus its value at distance 0, per head.

    Chi et al. 2023, "Dissecting Transformer length extrapolation via the lens of receptive field analysis",
    https://arxiv.org/abs/2212.10356, Sec. 5::

        p_i . p_j = sum over m = 1 .. D/2 of cos((i - j) w_m),    w_m = base ** (-2 m / D)   [radians per token]
        bias[h, i, j] = (p_i . p_j - D/2) / ratio_h,              ratio_h = 8 (h + 1) / H    for h = 0 .. H-1

    It falls about as the logarithm of the distance. The compression ratios are the exponents of ALiBi's slopes: the
    first head sees the shortest way. ``D/2`` is subtracted so that no score grows; softmax cancels it. Differs from
    the paper: it is defined for decoders (j <= i); encoders use the same formula, which is symmetric and cannot tell
    left from right. Angles are in at least float32. No parameters.

    Args:
        heads: H; positive.
        dimensions: D of the sinusoidal vectors, which no channel of the network has to match; positive and even. 128
            in the paper.
        base: sets the longest wavelength, about 2 pi * base tokens; greater than 1.

    Shape:
        positions (B or 1, T) and (B or 1, S) -> bias (B or 1, H, T, S), at least float32.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "texts longer than in training"
    paper = "Chi et al. 2023, https://arxiv.org/abs/2212.10356"

    def __init__(self, heads: int, *, dimensions: int = 128, base: float = 10_000.0) -> None:
        super().__init__()
        check_positive(heads=heads)
        check_sines(base, "dimensions", dimensions)
        self.heads, self.dimensions, self.base = heads, dimensions, base

    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return ``(p . p' - D/2) / ratio_h`` at that distance, (H, *shape), in at least float32."""
        wide = torch.promote_types(dtype, torch.float32)
        far, half = distance.abs().to(wide), self.dimensions // 2
        # wave by wave: all at once would need D/2 numbers per pair where positions are not contiguous
        product = torch.zeros_like(far)
        for m in range(1, half + 1):
            product = product + (far * self.base ** (-2 * m / self.dimensions)).cos()
        ratio_H = torch.arange(1, self.heads + 1, device=far.device, dtype=wide) * (8 / self.heads)
        return (product - half) / ratio_H.view(-1, *(1,) * distance.dim())
