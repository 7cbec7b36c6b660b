"""Exact attention in tiles that fit into the cache, with gradients for the bias and without a (T, S) matrix."""

from wordorder.attention.tiles.passes import attend
from wordorder.attention.tiles.tile import TileMask

__all__ = ["TileMask", "attend"]
