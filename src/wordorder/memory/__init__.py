"""Memories of earlier segments: what is kept, how a segment is read beside it, and what the segment leaves."""

from wordorder.memory.look_ahead import LookAheadMemory as LookAheadMemory
from wordorder.memory.memory import Memory as Memory
from wordorder.memory.segment import Segment as Segment
from wordorder.memory.segment import SegmentRead as SegmentRead
from wordorder.memory.segment import Step as Step
from wordorder.memory.segment import check_step as check_step
from wordorder.memory.segment import read_step as read_step
from wordorder.memory.segment_recurrence import SegmentRecurrence as SegmentRecurrence
from wordorder.memory.state import MemoryState as MemoryState
