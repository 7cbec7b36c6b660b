"""Memories of earlier segments: what is kept, how a segment is read beside it, and what the segment leaves."""

from wordorder.memory.look_ahead import LookAheadMemory as LookAheadMemory
from wordorder.memory.look_ahead import LookAheadState as LookAheadState
from wordorder.memory.segment_recurrence import RecurrenceState as RecurrenceState
from wordorder.memory.segment_recurrence import SegmentRecurrence as SegmentRecurrence
from wordorder.memory.state import KeyValues as KeyValues
from wordorder.memory.state import LayerRecord as LayerRecord
from wordorder.memory.state import Memory as Memory
from wordorder.memory.state import MemoryState as MemoryState
from wordorder.memory.state import RefreshedSlots as RefreshedSlots
from wordorder.memory.step import MemoryView as MemoryView
from wordorder.memory.step import OpenSegment as OpenSegment
from wordorder.memory.step import SegmentStep as SegmentStep
from wordorder.memory.step import StepPlan as StepPlan
from wordorder.memory.step import StepRead as StepRead
from wordorder.memory.step import check_step as check_step
from wordorder.memory.step import plan_step as plan_step
from wordorder.memory.step import read_step as read_step
