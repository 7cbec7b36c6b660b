"""Dropout masks of tiles, drawn again in the backward pass instead of being kept."""

import torch
from torch import Tensor

from wordorder.attention.tiles.geometry import TileSlice

LEVELS = 65_536
"""Probabilities are multiples of one over this: 16 random bits a weight take a fifth of a Bernoulli draw's time."""


class Dropout:
    """A random mask that depends on the seed and on the tile's position only, so that both passes draw the same.

    Args:
        probability: probability that a weight is dropped; rounded to the nearest 1/65,536.
        batch: B.
        queries: T.
        keys: S.
    """

    def __init__(self, probability: float, *, batch: int, queries: int, keys: int) -> None:
        self.level = min(round(probability * LEVELS), LEVELS - 1)
        self.probability = self.level / LEVELS
        self.batch, self.queries, self.keys = batch, queries, keys
        self.seed = int(torch.randint(2**62, (), device="cpu").item()) if self.level else 0

    def __bool__(self) -> bool:
        """Tell whether anything can be dropped."""
        return self.level > 0

    @property
    def rescale(self) -> float:
        """Return the factor on the weights that are kept."""
        return 1 / (1 - self.probability)

    def keep_mask(self, example: int, tile: TileSlice) -> Tensor:
        """Draw the mask of one example's tile, bool, True = the weight is kept."""
        place = (self.batch * tile.heads.start + example) * self.queries + tile.rows.start
        place = place * self.keys + tile.keys.start
        generator = torch.Generator("cpu")
        generator.manual_seed((self.seed + 0x9E3779B97F4A7C15 * place) % 2**63)
        bits = torch.empty(-(-tile.size() // 4), dtype=torch.int64, device="cpu")
        bits.random_(-(2**63), None, generator=generator)
        return bits.view(torch.int16)[: tile.size()].view(tile.shape()) >= self.level - LEVELS // 2
