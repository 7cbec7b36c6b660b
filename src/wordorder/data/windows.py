"""Running text in windows that are read each by itself, as models without a memory are scored."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import Dataset

from wordorder.data.encode import Integers
from wordorder.data.examples import Example, Key, resolve_keys
from wordorder.data.masking import IGNORED

if TYPE_CHECKING:
    from wordorder.data.lanes import RunningText


class Windows(Dataset[Example]):
    """A running text in windows of `length` tokens that advance by a stride and are read each by itself.

    Each token is predicted once, in the first window that holds it: shift_labels are -100 where a window repeats what
    one before it has predicted. With stride = length nothing overlaps, and the first token of a window is predicted
    from one token. With a smaller one every token is predicted from at least length - stride + 1 tokens (but at the
    beginning of a stream), at length / stride times the cost.

    Args:
        text: the text.
        stride: tokens by which windows advance, from 1 to length.
        start_id: stands at the beginning of each window in the place of the token that the text has there, for models
            that were trained so; None = the text's own token.

    Raises:
        ValueError: the stride is out of range.
    """

    def __init__(self, text: "RunningText", *, stride: int, start_id: int | None = None) -> None:
        if not 1 <= stride <= text.length:
            raise ValueError(f"stride must lie between 1 and the length of a segment, {text.length}, got {stride}")
        self.text, self.start_id = text, start_id
        self.characters, self.words = text.characters, text.words
        spans = [_window_ends(int(a), int(b), text.length, stride) for a, b in _pairs(text.streams)]
        self._begin, self._new, self._end = np.concatenate(spans, axis=1)

    def __len__(self) -> int:
        return len(self._end)

    def __getitem__(self, key: Key) -> Example:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        _, index_B = resolve_keys(keys, len(self))
        return [self._example(index) for index in index_B.tolist()]

    def _example(self, index: int) -> Example:
        where = np.arange(int(self._begin[index]), int(self._end[index]), dtype=np.int64)
        read, labels = self.text.inputs(where), self.text.labels(where)
        if self.start_id is not None:
            read[0] = self.start_id
        labels[where < self._new[index]] = IGNORED
        return {"input_ids": torch.as_tensor(read), "shift_labels": torch.as_tensor(labels)}


def _pairs(borders: Integers) -> list[tuple[int, int]]:
    return list(zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True))


def _window_ends(begin: int, end: int, length: int, stride: int) -> Integers:
    """Return the begin of each window of a stream, the begin of its new tokens, and its end, shape (3, windows)."""
    ends = np.append(np.arange(begin + length, end, stride), end)
    new = np.insert(ends[:-1], 0, begin)
    return np.stack([np.maximum(ends - length, begin) if stride < length else new, new, ends]).astype(np.int64)
