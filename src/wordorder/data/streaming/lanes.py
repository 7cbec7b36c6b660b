"""Streamed text in lanes: each row of a step goes on with its own text from step to step, for ever."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from wordorder.data.examples.encode import Ids
from wordorder.data.examples.keys import Example, Key
from wordorder.data.examples.segments import in_a_row
from wordorder.data.streaming.blocks import Blocks, refuse_empty
from wordorder.data.streaming.examples import Sharing, StreamedDataset
from wordorder.data.streaming.texts import Position

_EVERY = 8  # steps between two noted places


@dataclass(frozen=True, slots=True)
class _Piece:
    """Tokens that a lane reads in a step: those to predict, the one before them, and whether memory begins anew."""

    before: int
    ids: Ids
    reset: bool


class _Lane:
    """The block of a lane and how far it has been read."""

    def __init__(self) -> None:
        self.position: Position | None = None
        self.offset, self.before, self.fresh = 0, -1, True
        self.ids: Ids = np.empty(0, np.int32)
        self.ends: list[int] = []


class StreamedLanes(StreamedDataset):
    """A stream of text in lanes, as `Lanes` has a text that is at hand: segment k + 1 of a lane follows its segment k.

    A lane that has read its block goes on with the next block that no lane has yet, in the order of the lanes; so all
    lanes have the same amount at all times, and every token of an epoch is predicted once, from the one before it in
    its lane. Each process does so with its own blocks. Lanes never end: an epoch is followed by the next.

    With `by_document` documents are streams of their own: each begins a segment, before which memory is reset.
    """

    def __init__(self, blocks: Blocks, sharing: Sharing, *, length: int, sep_id: int, by_document: bool) -> None:
        self._length, self._sep_id, self._by_document = length, sep_id, by_document
        self._lanes = [_Lane() for _ in range(sharing.rows // sharing.world)]
        self._next = blocks.start(0)
        self._dealt = 0  # blocks of this epoch
        self._step = -1  # the segment that the lanes have read last
        self._pieces: list[_Piece] = []
        super().__init__(blocks, sharing)

    def _place(self) -> dict[str, object]:
        lanes = [
            {"position": lane.position, "offset": lane.offset, "before": lane.before, "fresh": lane.fresh}
            for lane in self._lanes
        ]
        return {"lanes": lanes, "next": self._next, "dealt": self._dealt}

    def _go_to(self, first: int, place: Mapping[str, Any]) -> None:
        self._next, self._dealt = dict(place["next"]), int(place["dealt"])
        self._step = first // (len(self._lanes) * self._sharing.parts) - 1
        self._pieces = []  # of that step: it was read before the place was noted
        for lane, saved in zip(self._lanes, place["lanes"], strict=True):
            if saved["position"] is not None:
                self._open(lane, dict(saved["position"]))
            else:
                lane.position, lane.ids = None, np.empty(0, np.int32)
            lane.offset, lane.before, lane.fresh = int(saved["offset"]), int(saved["before"]), bool(saved["fresh"])

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        return [self._example(self.own_number(key)) for key in keys]

    def _example(self, number: int) -> Example:
        turn, row = divmod(number, len(self._lanes))
        step, part = divmod(turn, self._sharing.parts)
        if step < self._step or (step == self._step and not self._pieces):
            self._return_to(number)
        per_step = len(self._lanes) * self._sharing.parts
        while self._step < step:
            self._note((self._step + 1) * per_step, at_least=_EVERY * per_step)
            self._pieces = [self._segment(lane) for lane in self._lanes]
            self._step += 1
        piece, size = self._pieces[row], self._length // self._sharing.parts
        labels = piece.ids[part * size : (part + 1) * size]
        read = np.concatenate([[piece.before], piece.ids])[part * size :][: len(labels)]
        return {
            "input_ids": torch.as_tensor(read.astype(np.int64)),
            "shift_labels": torch.as_tensor(labels.astype(np.int64)),
            "memory_reset": torch.tensor(piece.reset and part == 0),
        }

    def _segment(self, lane: _Lane) -> _Piece:
        before, reset = lane.before, lane.fresh
        held: list[Ids] = []
        wanted = self._length
        while wanted and not (self._by_document and held):
            if lane.offset >= len(lane.ids):
                self._deal(lane)
            document = bisect_right(lane.ends, lane.offset)
            if self._by_document:
                reset = lane.offset == (lane.ends[document - 1] if document else 0)
                before = self._sep_id if reset else lane.before
            taken = lane.ids[lane.offset : min(lane.offset + wanted, lane.ends[document])]
            held.append(taken)
            lane.offset += len(taken)
            wanted -= len(taken)
            lane.before = int(taken[-1])
        lane.fresh = False
        # A text begins as if another had just ended.
        return _Piece(self._sep_id if before < 0 else before, np.concatenate(held), reset)

    def _deal(self, lane: _Lane) -> None:
        """Give a lane the next block that nobody has."""
        while True:
            position = self._next
            if self._open(lane, position):
                self._dealt += 1
                return
            refuse_empty(position["epoch"], self._dealt, self._sharing.world)
            self._next, self._dealt = self._blocks.start(position["epoch"] + 1), 0

    def _open(self, lane: _Lane, position: Position) -> bool:
        """Read the block at a position into a lane; False where the epoch ends there."""
        block = self._blocks.read(position)
        if block is None:
            return False
        if position == self._next:  # and not one that is opened again
            self._next = block.after
        documents = block.encoded
        lane.position, lane.offset = position, 0
        lane.ids = in_a_row(documents, self._sep_id)
        ends = documents.borders[1:] + np.arange(1, len(documents) + 1)
        lane.ends = ends.tolist() if self._by_document else [len(lane.ids)]
        return True
