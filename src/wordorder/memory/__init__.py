"""Memories of earlier segments: what is kept, how a segment is read beside it, and what the segment leaves."""

from typing import TYPE_CHECKING

from wordorder.memory.memory import Memory as Memory
from wordorder.registry import Registry, lazy_names

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

MEMORIES: Registry[Memory] = Registry(
    "memory",
    {
        "segment-recurrence": "wordorder.memory.segment_recurrence:SegmentRecurrence",
        "same-layer": "wordorder.memory.same_layer:SameLayerRecurrence",
        "first-tokens": "wordorder.memory.first_tokens:FirstTokensRecurrence",
        "compressive": "wordorder.memory.compressive:CompressiveMemory",
        "look-ahead": "wordorder.memory.look_ahead:LookAheadMemory",
    },
)


def register_memory(memory: type[Memory]) -> None:
    """Register a class by its ``name``, which configurations and recipes then accept as ``memory``.

    A class of the same name from the same module replaces the one that was registered before.

    Raises:
        ValueError: the name is missing, taken or of a form other than letters, digits, "-" and "_", or the class is no
            memory, is abstract or has a field without a default beside ``length``.
    """
    name = getattr(memory, "name", "")
    if name == "none":
        raise ValueError("name 'none' says that there is no memory; choose another")
    MEMORIES.register(name, memory, base=Memory, sizes=("length",))


_MODULES = {
    "MemoryState": "wordorder.memory.state",
    **dict.fromkeys(("Segment", "SegmentRead", "Step", "check_step", "read_step"), "wordorder.memory.segment"),
}
__getattr__, __dir__ = lazy_names(__name__, _MODULES | MEMORIES.modules)
