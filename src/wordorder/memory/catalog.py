"""Map the name of every memory to its class, which is imported when it is first used."""

from wordorder.memory.memory import Memory
from wordorder.registry import Registry

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
