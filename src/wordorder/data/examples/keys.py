"""The keys of examples: an index, or an epoch and an index."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import Dataset

Example = dict[str, Tensor]

Key = int | tuple[int, int]
"""An index (of epoch 0), or (epoch, index)."""


class KeyedExamples(Dataset[Example], ABC):
    """A data set whose examples are asked for by key, one by one or a batch together."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        """Return the examples of a batch."""

    def __getitem__(self, key: Key) -> Example:
        return self.__getitems__([key])[0]

    @property
    def unit_documents(self) -> npt.NDArray[np.int64]:
        """The index of the document that each unit is a piece of, shape (units,).

        A unit is the smallest piece of text whose score is kept: an example here, and of running text up to
        `UNIT` tokens of one document, however the text is read.
        """
        return np.arange(len(self), dtype=np.int64)

    def units_of(self, index_B: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        """Return the unit of each example, (B,), or of each of the `width` labels of each, (B, width)."""
        return index_B


def resolve_keys(keys: Sequence[Key], length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the epoch and the index of each key; a negative index counts from the end of the data set."""
    pairs = np.array([key if isinstance(key, tuple) else (0, key) for key in keys], dtype=np.int64).reshape(-1, 2)
    epoch_B, index_B = pairs[:, 0], pairs[:, 1]
    index_B = np.where(index_B < 0, index_B + length, index_B)
    if ((index_B < 0) | (index_B >= length)).any():
        raise IndexError(f"no such example among {length}: {keys}")
    return epoch_B, index_B
