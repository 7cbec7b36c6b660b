"""Memories of earlier segments: what is kept, how it is refreshed, and what a segment leaves."""

from wordorder.memory.look_ahead import LookAheadMemory, LookAheadState
from wordorder.memory.segment import Attend, LookAheadSegment, Memory, Plans, RecurrentSegment, Segment
from wordorder.memory.segment_recurrence import RecurrenceState, SegmentRecurrence
from wordorder.memory.state import MemoryState

__all__ = [
    "Attend",
    "LookAheadMemory",
    "LookAheadSegment",
    "LookAheadState",
    "Memory",
    "MemoryState",
    "Plans",
    "RecurrenceState",
    "RecurrentSegment",
    "Segment",
    "SegmentRecurrence",
]
