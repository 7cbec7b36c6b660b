"""The keys of examples, and the order in which training sees them; random numbers that are pure functions.

Every choice in the data is `uniform(counter_hash(seed, epoch, example index, ...))`. There is no generator whose state
could depend on the number of workers, the make-up of a batch or what was drawn before; a resumed run repeats exactly.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import Dataset, Sampler

Words = npt.NDArray[np.uint64]

_WORD = (1 << 64) - 1


def splitmix64(x: Words) -> Words:
    """Mix each 64-bit word of x, one to one (Steele, Lea and Flood 2014, "Fast Splittable ...").

    Args:
        x: an array, not a numpy scalar: numpy warns when a scalar wraps around, which is meant here.
    """
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def counter_hash(seed: int, *counters: int | npt.NDArray[np.integer]) -> Words:
    """Hash a seed and counters to 64-bit words, one per element of the broadcast counters (at least one-dimensional).

    Args:
        seed: any whole number; taken modulo 2**64.
        counters: whole numbers or arrays of them; their order matters.
    """
    state = splitmix64(np.array([seed & _WORD], dtype=np.uint64))
    for counter in counters:
        word = np.array([counter & _WORD], np.uint64) if isinstance(counter, int) else counter.astype(np.uint64)
        state = splitmix64(state ^ word)
    return state


def uniform(words: Words) -> npt.NDArray[np.float64]:
    """Turn 64-bit words into numbers in [0, 1), of 53 random bits each."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


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


Order = npt.NDArray[np.int64]

_SHUFFLE, _BATCHES = 0x5F0D, 0xBA7C  # keep the draws of this file apart from each other and from the masks


def _permutation(length: int, seed: int, purpose: int, epoch: int) -> Order:
    return np.argsort(counter_hash(seed, purpose, epoch, np.arange(length)), kind="stable")


class EpochOrder(Sampler[tuple[int, int]]):
    """Yield every (epoch, index) once, in an order that depends on (seed, epoch) alone.

    Args:
        length: number of examples, positive.
        shuffle: False yields the indices as they come.
    """

    def __init__(self, length: int, *, seed: int, shuffle: bool = True) -> None:
        if length <= 0:
            raise ValueError(f"length must be positive, got {length}")
        self.length, self.seed, self.shuffle = length, seed, shuffle
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def indices(self) -> Order:
        return _permutation(self.length, self.seed, _SHUFFLE, self.epoch) if self.shuffle else np.arange(self.length)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.epoch
        return ((epoch, index) for index in self.indices().tolist())

    def __len__(self) -> int:
        return self.length


class LengthGroupedEpochOrder(EpochOrder):
    """As `EpochOrder`, with examples of about the same length in one batch, so that little is padded.

    A window of 50 shuffled batches is sorted by length, cut into batches, and the batches are shuffled. The longest
    batch is not moved to the front: that would make the first step of every epoch special.

    Args:
        lengths: tokens of each example.
        batch_size: examples per batch, positive.
    """

    def __init__(self, lengths: Sequence[int], *, batch_size: int, seed: int) -> None:
        super().__init__(len(lengths), seed=seed)
        if batch_size <= 0:
            raise ValueError(f"batch_size must be positive, got {batch_size}")
        self.lengths, self.batch_size = np.asarray(lengths), batch_size

    def indices(self) -> Order:
        shuffled, window = super().indices(), 50 * self.batch_size
        by_length = [
            part[np.argsort(self.lengths[part], kind="stable")]
            for part in np.split(shuffled, range(window, self.length, window))
        ]
        batches = np.split(np.concatenate(by_length), range(self.batch_size, self.length, self.batch_size))
        # The last batch may be short. It stays last: in the middle it would shift the border of every later batch.
        order = _permutation(len(batches) - 1, self.seed, _BATCHES, self.epoch)
        return np.concatenate([batches[i] for i in [*order.tolist(), len(batches) - 1]])
