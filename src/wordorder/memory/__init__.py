"""Memories of earlier segments: what is kept, how a segment is read beside it, and what the segment leaves."""

from wordorder.memory.look_ahead import LookAheadMemory, LookAheadState
from wordorder.memory.segment_recurrence import RecurrenceState, SegmentRecurrence
from wordorder.memory.state import KeyValues, LayerRecord, Memory, MemoryState, RefreshedSlots
from wordorder.memory.step import (
    MemoryView,
    OpenSegment,
    SegmentStep,
    StepPlan,
    StepRead,
    check_step,
    plan_step,
    read_step,
)

__all__ = [
    "KeyValues",
    "LayerRecord",
    "LookAheadMemory",
    "LookAheadState",
    "Memory",
    "MemoryState",
    "MemoryView",
    "OpenSegment",
    "RecurrenceState",
    "RefreshedSlots",
    "SegmentRecurrence",
    "SegmentStep",
    "StepPlan",
    "StepRead",
    "check_step",
    "plan_step",
    "read_step",
]
