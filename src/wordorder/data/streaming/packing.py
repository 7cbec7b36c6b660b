"""Segments of a text that comes block by block: the same as `data.examples.segments` makes of the whole text."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wordorder.data.examples.encoded import EncodedDocuments
from wordorder.data.examples.segments import (
    Segments,
    closed_spans,
    framed,
    full_segments,
    in_a_row,
    pack_full_sentences,
    with_separators,
)

Carry = dict[str, Any]
"""Tokens that one block leaves for the next one, as plain values: fewer than a segment has, or about so."""

_NONE = np.empty(0, np.int32)


class Packer(Protocol):
    """Makes segments of blocks. `carry` may be put back to go on from any block."""

    carry: Carry

    def feed(self, documents: EncodedDocuments) -> Segments:
        """Return the segments that are full after these documents."""
        ...

    def flush(self) -> Segments:
        """Return the segments of what is left at the end of the text."""
        ...


def no_segments() -> Segments:
    """Return an empty `Segments`."""
    return Segments(ids=_NONE, starts=np.zeros(1, np.int64))


class WholeSentences:
    """Packs as `pack_full_sentences` does: a segment never crosses documents, so that nothing is left over."""

    def __init__(self, *, length: int, cls_id: int, sep_id: int) -> None:
        self.carry: Carry = {}
        self._how = {"length": length, "cls_id": cls_id, "sep_id": sep_id}

    def feed(self, documents: EncodedDocuments) -> Segments:
        """Return the segments of these documents."""
        return pack_full_sentences(documents, **self._how)

    def flush(self) -> Segments:
        """Return no segments."""
        return no_segments()


class AcrossDocuments:
    """Pack as `pack_across_documents` does; carry the open segment, whose end the next sentence may still move."""

    def __init__(self, *, length: int, cls_id: int, sep_id: int) -> None:
        self.carry: Carry = {}
        self._room, self._ends = length - 2, {"cls_id": cls_id, "sep_id": sep_id}

    def feed(self, documents: EncodedDocuments) -> Segments:
        """Return the segments that are closed after these documents."""
        before, known = _carried(self.carry), list[int](self.carry.get("borders", [0]))
        running, borders = with_separators(documents, self._ends["sep_id"])
        whole = np.concatenate([before, running])
        all_borders = [*known, *(borders[1:] + len(before)).tolist()]
        spans, start = closed_spans(all_borders, self._room)
        open_borders = [0, *(border - start for border in all_borders if border > start)]
        self.carry = {"ids": whole[start:].tolist(), "borders": open_borders}
        return framed(whole, spans, **self._ends) if spans else no_segments()

    def flush(self) -> Segments:
        """Return the open segment, or no segments."""
        ids, self.carry = _carried(self.carry), {}
        return framed(ids, [(0, len(ids))], **self._ends) if len(ids) else no_segments()


class RunningSegments:
    """Packs as `pack_contiguous` does, or, with `keep_last`, as `pack_running_text`.

    What does not fill a segment is carried.

    Args:
        length: tokens of a segment.
        keep_last: the last segment may be short; False loses it.
    """

    def __init__(self, *, length: int, cls_id: int, sep_id: int, keep_last: bool = False) -> None:
        self.carry: Carry = {}
        self._length, self._cls_id, self._sep_id, self._keep_last = length, cls_id, sep_id, keep_last

    def feed(self, documents: EncodedDocuments) -> Segments:
        """Return the segments that are full after these documents."""
        running = np.concatenate([_carried(self.carry), in_a_row(documents, self._sep_id)])
        segments = full_segments(running, length=self._length, cls_id=self._cls_id)
        self.carry = {"ids": running[len(segments) * (self._length - 1) :].tolist()}
        return segments

    def flush(self) -> Segments:
        """Return the short segment at the end, or no segments."""
        ids, self.carry = _carried(self.carry), {}
        if not len(ids) or not self._keep_last:
            return no_segments()
        return Segments(ids=np.insert(ids, 0, self._cls_id), starts=np.array([0, len(ids) + 1], np.int64))


def _carried(carry: Mapping[str, object]) -> npt.NDArray[np.int32]:
    return np.array(carry.get("ids", ()), np.int32)


def packer_for(packing: str, *, running_text: bool, length: int, cls_id: int, sep_id: int) -> Packer:
    """Return the packer of a recipe.

    Args:
        running_text: cut text anywhere, whatever the packing.
    """
    ends = {"length": length, "cls_id": cls_id, "sep_id": sep_id}
    if running_text:
        return RunningSegments(keep_last=True, length=length, cls_id=cls_id, sep_id=sep_id)
    if packing == "contiguous":
        return RunningSegments(length=length, cls_id=cls_id, sep_id=sep_id)
    return AcrossDocuments(**ends) if packing == "full-sentences-across-documents" else WholeSentences(**ends)
