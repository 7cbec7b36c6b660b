"""Attention in tiles that fit into the cache: exact, with gradients for the bias, in memory that need not be square."""

from wordorder.attention.tiles.call import attend
from wordorder.attention.tiles.hidden import Hidden

__all__ = ["Hidden", "attend"]
