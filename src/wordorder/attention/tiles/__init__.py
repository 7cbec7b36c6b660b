"""Attention in tiles that fit into the cache: exact, with gradients for the bias, in memory that need not be square."""

from wordorder.attention.tiles.call import attend
from wordorder.attention.tiles.mask import TileMask

__all__ = ["TileMask", "attend"]
