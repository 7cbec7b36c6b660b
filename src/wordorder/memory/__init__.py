"""Memories of earlier segments: what is kept, how a segment is read beside it, and what the segment leaves."""

from typing import TYPE_CHECKING

from wordorder.lazy import lazy_names
from wordorder.memory.catalog import MEMORIES as MEMORIES
from wordorder.memory.catalog import register_memory as register_memory
from wordorder.memory.memory import Memory as Memory

if TYPE_CHECKING:
    from wordorder.memory.compressive import CompressiveMemory as CompressiveMemory
    from wordorder.memory.first_tokens import FirstTokensRecurrence as FirstTokensRecurrence
    from wordorder.memory.look_ahead import LookAheadMemory as LookAheadMemory
    from wordorder.memory.same_layer import SameLayerRecurrence as SameLayerRecurrence
    from wordorder.memory.segment import Segment as Segment
    from wordorder.memory.segment import SegmentRead as SegmentRead
    from wordorder.memory.segment import Step as Step
    from wordorder.memory.segment import check_step as check_step
    from wordorder.memory.segment import read_step as read_step
    from wordorder.memory.segment_recurrence import SegmentRecurrence as SegmentRecurrence
    from wordorder.memory.state import MemoryState as MemoryState

_MODULES = {
    "MemoryState": "wordorder.memory.state",
    **dict.fromkeys(("Segment", "SegmentRead", "Step", "check_step", "read_step"), "wordorder.memory.segment"),
}
__getattr__, __dir__ = lazy_names(__name__, _MODULES | MEMORIES.modules)
