"""The interface of a term of the bias: add values to a tile, accumulate the gradient of a tile."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from wordorder.attention.tiles.geometry import TileSlice


class TermTiles(ABC):
    """One term of the bias.

    Args:
        tensors: the tensors of the term, each with a first axis of B or 1 examples.
        queries: T.
        wanted: whether their gradient is needed.
    """

    def __init__(self, tensors: Sequence[Tensor], queries: int, wanted: bool) -> None:
        self.tensors, self.queries, self.wanted = tuple(tensors), queries, wanted
        self.shared = all(tensor.shape[0] == 1 for tensor in tensors)
        self.gradients = [torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]
        if not wanted:
            self.gradients = []

    @abstractmethod
    def add_to(self, tile_HRE: Tensor, example: int, tile: TileSlice, *, first: bool) -> None:
        """Add this term to the tile; ``first``: overwrite the tile."""

    @abstractmethod
    def accumulate_gradient(self, gradient_HRE: Tensor, example: int, tile: TileSlice) -> None:
        """Add the gradient of the tile to ``gradients``."""
