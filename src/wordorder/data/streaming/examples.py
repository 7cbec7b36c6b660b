"""Examples of a stream by number: reading on is cheap, and going back starts from a place that was noted."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from wordorder.data.examples.datasets import continued
from wordorder.data.examples.encode import Ids
from wordorder.data.examples.keys import Example, Key, KeyedExamples
from wordorder.data.examples.masking import Masking
from wordorder.data.examples.segments import Packer, Segments
from wordorder.data.randomness import counter_hash
from wordorder.data.streaming.blocks import Blocks, refuse_empty
from wordorder.errors import RunFailed

_SHUFFLE = 0x57E4  # keeps the draws of this file apart from others
_NOTED = 8
"""Number of places that are kept. A checkpoint is written while the loader is already a batch ahead, so the newest
place may lie behind what has been trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Division of a training's examples among processes: batch after batch, to the processes in turn.

    So accelerate does it with the batches of a sampler: example n is in batch n // batch, which is of process
    (n // batch) % world. Each process numbers its own examples from 0.

    Args:
        accumulation: micro-batches of a step of one process, pieces of a segment counted too.
        parts: pieces in which a step reads each segment, see `Lanes`.
    """

    batch: int
    accumulation: int
    steps: int
    rank: int = 0
    world: int = 1
    parts: int = 1

    def __len__(self) -> int:
        """Return the number of examples of all processes."""
        return self.batch * self.accumulation * self.world * self.steps

    @property
    def rows(self) -> int:
        """Number of rows of a step, of all processes."""
        return self.batch * (self.accumulation // self.parts) * self.world

    def own(self, index: int) -> int:
        """Return the number that this process has for an example.

        Raises:
            IndexError: there is no such example, or it is another process's.
        """
        micro, row = divmod(index, self.batch)
        if not 0 <= index < len(self) or micro % self.world != self.rank:
            raise IndexError(f"example {index} of {len(self)} is not one of process {self.rank} of {self.world}")
        return micro // self.world * self.batch + row


class StreamedDataset(KeyedExamples):
    """Base class of streamed segments and streamed lanes: asked for example n, they read on until they have it.

    A sampler asks for the examples of a process in order, from wherever a resumed run goes on. The state holds a few
    places to begin at; it only saves reading: without it the same examples come, found again from the beginning.
    """

    def __init__(self, blocks: Blocks, sharing: Sharing) -> None:
        self._blocks, self._sharing = blocks, sharing
        self._noted: list[tuple[int, Any]] = [(0, self._place())]

    def __len__(self) -> int:
        return len(self._sharing)

    def own_number(self, key: Key) -> int:
        """Return this process's number for an example; where an epoch of the text ends, the stream knows alone."""
        return self._sharing.own(key[1] if isinstance(key, tuple) else key)

    @abstractmethod
    def _place(self) -> object:
        """Return the place where reading goes on, as plain values."""

    @abstractmethod
    def _go_to(self, first: int, place: Any) -> None:
        """Go on reading at a place from `_place`, where example `first` comes next."""

    def _note(self, first: int, *, at_least: int) -> None:
        """Note the present place, unless one was noted a few examples ago."""
        if first - self._noted[-1][0] >= at_least:
            # the first place of all is kept, so that every example can be found again
            self._noted = [self._noted[0], *self._noted[1:][1 - _NOTED :], (first, self._place())]

    def _return_to(self, number: int) -> None:
        """Go back to the last noted place that is not behind an example."""
        self._noted = [noted for noted in self._noted if noted[0] <= number]
        self._go_to(*self._noted[-1])

    def state_dict(self) -> dict[str, Any]:
        """Return the state: places to begin at, so that not all is read again, and the log of texts passed over."""
        return {
            "source": self._blocks.source.fingerprint,
            "places": [[first, place] for first, place in self._noted],
            "log": self._blocks.log.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state and go on reading from it.

        Raises:
            RunFailed: the source is another one than that of the state.
        """
        if state["source"] != self._blocks.source.fingerprint:
            raise RunFailed(
                "the streamed source is not the one of the checkpoint: other files, sizes or contents; bring it back"
            )
        self._noted = [(int(first), place) for first, place in state["places"]]
        self._blocks.log.load_state_dict(state["log"])
        self._go_to(*self._noted[-1])


class StreamedSegments(StreamedDataset):
    """Segments of a stream, shuffled within runs of `buffer`, with tokens masked or to be predicted from the left.

    A segment's place in its run, and its masks, depend on the seed, the epoch and its number in the epoch alone. Unlike
    a buffer that a random element is taken from, a run needs no contents in a checkpoint to go on exactly. A place is
    the position of the block that is being read, what the block before it left over, and how many segments of the block
    are done. Going on reads that block again, from the cache if it is there.

    Args:
        packer: makes segments of blocks.
        buffer: segments of a run.
        masking: for masked-lm, whose segments have a token that it may choose; None for causal-lm.
        seed: of the order.
        mask_seed: of the masks.
    """

    def __init__(
        self,
        blocks: Blocks,
        sharing: Sharing,
        *,
        packer: Packer,
        buffer: int,
        masking: Masking | None,
        seed: int,
        mask_seed: int,
    ) -> None:
        self._packer, self._buffer, self._masking = packer, buffer, masking
        self._seed, self._mask_seed = seed, mask_seed
        self._go_to(0, {"position": blocks.start(0), "carry": {}, "used": 0, "example": 0})
        super().__init__(blocks, sharing)

    def _place(self) -> dict[str, object]:
        return {"position": self._position, "carry": self._carry, "used": self._used, "example": self._example}

    def _go_to(self, first: int, place: Mapping[str, Any]) -> None:
        self._position, self._carry, self._used = dict(place["position"]), dict(place["carry"]), int(place["used"])
        self._example = int(place["example"])  # number, in its epoch, of the segment that comes next
        self._segments: Segments | None = None
        self._after: dict[str, Any] | None = None
        self._first, self._run = first, list[tuple[int, int, Ids]]()

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        rows = [self._row(self.own_number(key)) for key in keys]
        if self._masking is None:
            return [continued(torch.as_tensor(ids.astype(np.int64))) for _, _, ids in rows]
        length_B = np.array([len(ids) for _, _, ids in rows])
        present_BN = np.arange(int(length_B.max())) < length_B[:, None]
        ids_BN = np.zeros(present_BN.shape, np.int64)
        ids_BN[present_BN] = np.concatenate([ids for _, _, ids in rows])
        # Each of several processes has its own n-th segment, and masks of its own for it.
        index_B = np.array([example for _, example, _ in rows]) * self._sharing.world + self._sharing.rank
        epoch_B = np.array([epoch for epoch, _, _ in rows])
        return self._masking.examples(ids_BN, present_BN, seed=self._mask_seed, epoch_B=epoch_B, index_B=index_B)

    def _row(self, number: int) -> tuple[int, int, Ids]:
        """Return the epoch of a segment, its number in the epoch, and its tokens."""
        if number < self._first:
            self._return_to(number)
        while number >= self._first + len(self._run):
            self._first += len(self._run)
            self._run = []
            self._note(self._first, at_least=4 * self._sharing.batch)
            while not self._run:
                epoch, first = int(self._position["epoch"]), self._example
                taken = self._take()
                order = np.arange(len(taken))
                if self._buffer > 1:
                    drawn = counter_hash(self._seed, _SHUFFLE, self._sharing.rank, epoch, first + order)
                    order = np.argsort(drawn, kind="stable")
                self._run = [(epoch, first + n, taken[n]) for n in order.tolist()]
        return self._run[number - self._first]

    def _take(self) -> list[Ids]:
        """Return the next segments of this epoch: fewer than a run has at its end, and none behind it.

        Then the next call begins the next epoch.
        """
        taken: list[Ids] = []
        while len(taken) < self._buffer:
            segments = self._load() if self._segments is None else self._segments
            if self._used < len(segments):
                end = min(len(segments), self._used + self._buffer - len(taken))
                taken += [segments[number] for number in range(self._used, end)]
                self._used = end
            elif self._after is not None:
                self._position, self._carry, self._used, self._segments = self._after, self._packer.carry, 0, None
            elif taken:
                break
            else:
                epoch = int(self._position["epoch"])
                refuse_empty(epoch, self._example, self._sharing.world)
                start = self._blocks.start(epoch + 1)
                self._go_to(self._first, {"position": start, "carry": {}, "used": 0, "example": 0})
                break
        self._example += len(taken)
        return taken

    def _load(self) -> Segments:
        self._packer.carry = dict(self._carry)
        block = self._blocks.read(self._position)
        packed = self._packer.flush() if block is None else self._packer.feed(block.encoded)
        self._segments = packed if self._masking is None else packed.only(packed.containing(~self._masking.special))
        self._after = None if block is None else block.after
        return self._segments
