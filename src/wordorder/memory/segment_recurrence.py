"""The memory of Transformer-XL: the states of earlier tokens, layer by layer, as further keys and values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, Unpack

from torch import Tensor

from wordorder.memory.state import MemoryState, Standing


@dataclass(frozen=True)
class SegmentRecurrence:
    """Segment-level recurrence: each layer also attends to what it read from the segments before.

    Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860, Sec. 3.2, for layer l and segment tau::

        h~[tau] = [stop_gradient(h^(l-1)[tau-1]) ; h^(l-1)[tau]]
        q = W_q h^(l-1)[tau],   k = W_k h~[tau],   v = W_v h~[tau]

    So a network of L layers sees about L times ``length`` tokens back. It costs N (M + N) scores per layer, and the
    keys and values of M more tokens.

    Args:
        length: most slots, M: tokens that are kept; positive.
        same_length: every token sees at most ``length`` keys, the last ones, itself included, as the paper does for
            evaluation, instead of all that are there.

    Raises:
        ValueError: length is not a positive whole number.
    """

    name: ClassVar[Literal["segment-recurrence"]] = "segment-recurrence"
    length: int
    same_length: bool = False

    def __post_init__(self) -> None:
        if type(self.length) is not int:
            raise ValueError(f"length must be a whole number, got {self.length!r}")
        if self.length <= 0:
            raise ValueError(f"length must be positive, got {self.length}; for no memory pass memory=None")


@dataclass(frozen=True, kw_only=True)
class RecurrenceState(MemoryState):
    """What `SegmentRecurrence` keeps.

    Args:
        hidden: what each layer read, from the first to the last, each (B, M, C).
    """

    kind: ClassVar[str] = "segment-recurrence"
    hidden: tuple[Tensor, ...]

    def slots(self) -> dict[str, Tensor]:
        """Every layer's states, by name."""
        return {f"hidden.{layer}": tensor for layer, tensor in enumerate(self.hidden)}

    @classmethod
    def from_slots(cls, slots: Mapping[str, Tensor], **standing: Unpack[Standing]) -> Self:
        """The state of these tensors, named as in `slots`."""
        names = [f"hidden.{layer}" for layer in range(len(slots))]
        if not slots or set(names) != set(slots):
            found = ", ".join(sorted(slots)) or "none of them"
            raise ValueError(f"segment recurrence keeps hidden.0, hidden.1, .., got {found}")
        return cls(
            hidden=tuple(slots[name] for name in names),
            **standing,
        )
