"""The segments of a stream, one after another, epoch after epoch, from any place."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from wordorder.data.examples.segments import Segments
from wordorder.data.streaming.blocks import Blocks, refuse_empty
from wordorder.data.streaming.packing import Packer

Ids = npt.NDArray[np.int32]


class SegmentReader:
    """Reads on in a stream of segments.

    Its state is small: the position of the block that is being read, what the block before it left over, and how many
    segments of the block are done. Going on reads that block again, from the cache if it is there.

    Args:
        packer: makes segments of blocks.
        keep: leaves out segments that are good for nothing.
    """

    def __init__(self, blocks: Blocks, packer: Packer, *, keep: Callable[[Segments], Segments], world: int = 1) -> None:
        self._blocks, self._packer, self._keep, self._world = blocks, packer, keep, world
        self.load_state_dict({"position": blocks.start(0), "carry": {}, "used": 0, "example": 0})

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which reading goes on."""
        return {"position": self._position, "carry": self._carry, "used": self._used, "example": self.example}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state and go on reading from it."""
        self._position, self._carry, self._used = dict(state["position"]), dict(state["carry"]), int(state["used"])
        self.example = int(state["example"])
        """Number, in its epoch, of the segment that comes next."""
        self._segments: Segments | None = None
        self._after: dict[str, Any] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the segment that comes next, or that has just ended."""
        return int(self._position["epoch"])

    def take(self, most: int) -> list[Ids]:
        """Return the next segments of this epoch.

        Returns:
            Fewer only at the end of the epoch, and none at all there; then the next call begins the next epoch.
        """
        taken: list[Ids] = []
        while len(taken) < most:
            segments = self._load() if self._segments is None else self._segments
            if self._used < len(segments):
                end = min(len(segments), self._used + most - len(taken))
                taken += [segments.ids[segments.starts[n] : segments.starts[n + 1]] for n in range(self._used, end)]
                self._used = end
            elif self._after is None:
                if not taken:
                    self._next_epoch()
                break
            else:
                self._position, self._carry, self._used, self._segments = self._after, self._packer.carry, 0, None
        self.example += len(taken)
        return taken

    def _load(self) -> Segments:
        self._packer.carry = dict(self._carry)
        block = self._blocks.read(self._position)
        packed = self._packer.flush() if block is None else self._packer.feed(block.encoded)
        self._segments, self._after = self._keep(packed), None if block is None else block.after
        return self._segments

    def _next_epoch(self) -> None:
        refuse_empty(self.epoch, self.example, self._world)
        start = self._blocks.start(self.epoch + 1)
        self.load_state_dict({"position": start, "carry": {}, "used": 0, "example": 0})
