"""Streamed examples for models that read each segment by itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from wordorder.data.examples.datasets import Example, Key
from wordorder.data.examples.masking import IGNORED, Masking
from wordorder.data.randomness import counter_hash
from wordorder.data.streaming.blocks import Blocks
from wordorder.data.streaming.places import StreamedDataset
from wordorder.data.streaming.segments import Ids, SegmentReader
from wordorder.data.streaming.sharing import Sharing

_SHUFFLE = 0x57E4  # keeps the draws of this file apart from others


class StreamedSegments(StreamedDataset):
    """Segments of a stream, shuffled within runs of `buffer`, with tokens masked or to be predicted from the left.

    A segment's place in its run, and its masks, depend on the seed, the epoch and its number in the epoch alone. Unlike
    a buffer that a random element is taken from, a run needs no contents in a checkpoint to go on exactly.

    Args:
        buffer: segments of a run.
        masking: for masked-lm; None for causal-lm.
        seed: of the order.
        mask_seed: of the masks.
    """

    def __init__(
        self,
        blocks: Blocks,
        sharing: Sharing,
        *,
        reader: SegmentReader,
        buffer: int,
        masking: Masking | None,
        seed: int,
        mask_seed: int,
    ) -> None:
        self._reader, self._buffer, self._masking = reader, buffer, masking
        self._seed, self._mask_seed = seed, mask_seed
        self._first, self._run = 0, list[tuple[int, int, Ids]]()
        super().__init__(blocks, sharing)

    def _place(self) -> dict[str, object]:
        return self._reader.state_dict()

    def _go_to(self, first: int, place: Mapping[str, Any]) -> None:
        self._reader.load_state_dict(place)
        self._first, self._run = first, []

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        rows = [self._row(self.own_number(key)) for key in keys]
        return self._masked(rows) if self._masking is not None else [_continued(ids) for _, _, ids in rows]

    def _row(self, number: int) -> tuple[int, int, Ids]:
        """Return the epoch of a segment, its number in the epoch, and its tokens."""
        if number < self._first:
            self._return_to(number)
        while number >= self._first + len(self._run):
            self._next_run()
        return self._run[number - self._first]

    def _next_run(self) -> None:
        self._first += len(self._run)
        self._run = []
        self._note(self._first, at_least=4 * self._sharing.batch)
        while not self._run:
            epoch, first = self._reader.epoch, self._reader.example
            taken = self._reader.take(self._buffer)
            order = np.argsort(
                counter_hash(self._seed, _SHUFFLE, self._sharing.rank, epoch, first + np.arange(len(taken))),
                kind="stable",
            )
            self._run = [
                (epoch, first + n, taken[n]) for n in (order.tolist() if self._buffer > 1 else range(len(taken)))
            ]

    def _masked(self, rows: Sequence[tuple[int, int, Ids]]) -> list[Example]:
        assert self._masking is not None
        length_B = np.array([len(ids) for _, _, ids in rows])
        present_BN = np.arange(int(length_B.max())) < length_B[:, None]
        ids_BN = np.zeros(present_BN.shape, np.int64)
        ids_BN[present_BN] = np.concatenate([ids for _, _, ids in rows])
        # Each of several processes has its own n-th segment, and masks of its own for it.
        index_B = np.array([example for _, example, _ in rows]) * self._sharing.world + self._sharing.rank
        epoch_B = np.array([epoch for epoch, _, _ in rows])
        seen_BN, labels_BN = self._masking(ids_BN, present_BN, seed=self._mask_seed, epoch_B=epoch_B, index_B=index_B)
        found = zip(torch.as_tensor(seen_BN), torch.as_tensor(labels_BN), length_B.tolist(), strict=True)
        return [{"input_ids": seen[:count], "labels": labels[:count]} for seen, labels, count in found]


def _continued(ids: Ids) -> Example:
    """Make an example as `CausalLanguageExamples` does: nothing stands before [CLS], so it is not predicted."""
    read = torch.as_tensor(ids.astype(np.int64))
    labels = read.clone()
    labels[0] = IGNORED
    return {"input_ids": read, "labels": labels}
