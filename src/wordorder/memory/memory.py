"""The base class of memories of earlier segments."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from wordorder.attention import LayerStep, Record

if TYPE_CHECKING:
    from wordorder.memory.segment import Segment, Step
    from wordorder.memory.state import MemoryState


@dataclass(frozen=True)
class Memory(ABC):
    """The base of memories of earlier segments, which networks are built with: a value that owns its step.

    A memory says what a layer reads (`rows`), how it attends (`layer_step`), what tokens leave (`leaves`) and what of
    that is kept (`survivors`, `kept`).

    Args:
        length: most slots, M: tokens that are kept; positive.

    Raises:
        ValueError: length is not a positive whole number, or a switch of a subclass is not True or False.
    """

    name: ClassVar[str]
    looks_right: ClassVar[bool] = False
    """Whether queries attend to keys to their right, in decoders too."""
    noted: ClassVar[tuple[str, ...]] = ()
    """Names in `Record.left` that a segment keeps for inspection (`Segment.notes`)."""

    length: int

    def __post_init__(self) -> None:
        if type(self.length) is not int:
            raise ValueError(f"length must be a whole number, got {self.length!r}")
        if self.length <= 0:
            raise ValueError(f"length must be positive, got {self.length}; for no memory pass memory=None")
        for field in fields(self):  # of the subclasses too: "no", from a file, would count as true
            value = getattr(self, field.name)
            if type(field.default) is bool and type(value) is not bool:
                raise ValueError(f"{field.name} must be True or False, got {value!r}")

    @abstractmethod
    def slot_shapes(self, layers: int, *, channels: int, heads: int) -> dict[str, tuple[int, ...]]:
        """Return the shape that one slot has in each tensor of the state, by name; () is one number of any dtype."""

    def weights(self, layers: int, channels: int) -> nn.Module | None:
        """Return weights that the memory learns, for a network of so many layers; it finds them in `Segment.weights`.

        What they learn from is the ``loss`` of a layer's record.
        """
        del layers, channels

    @property
    def window(self) -> int | None:
        """Most keys that a token sees, itself included; None = all that are there."""
        return None

    @property
    def reach(self) -> int:
        """Number of tokens of a text after which the memory is full."""
        return self.length

    def needs_lse(self, layers: int) -> bool:
        """Tell whether the attention of tokens returns its log-sum-exp, in a network of so many layers."""
        del layers
        return False

    def prepare(self, step: "Step") -> Any:
        """Return what all layers need in a step beside the plan of its tokens; they read it as ``step.prepared``."""
        del step

    @abstractmethod
    def rows(self, layer: int, x_BTC: Tensor, step: "Step") -> Tensor:
        """Return what layer ``layer`` (from 0) reads in a segment's first step: the slots, then the tokens."""

    def layer_step(self, layer: int, step: "Step", *, weights: bool = False) -> LayerStep:
        """Return how layer ``layer`` attends: the tokens to slots and tokens."""
        return LayerStep(**step.arguments(layer), weights=weights)

    @abstractmethod
    def leaves(self, layer: int, x_BTC: Tensor, out_BTC: Tensor, record: Record, step: "Step") -> dict[str, Tensor]:
        """Return what the tokens of a step leave in layer ``layer``, by the names of its slots, detached.

        Each tensor is (B, T, ...), one row for each token, in every step: which of them stay is for `survivors`. Each
        name comes from one layer only.

        Args:
            layer: from 0.
            x_BTC: the tokens' states that the layer reads (with slots before them where they came with them).
            out_BTC: what it gives for them (and for slots that have queries, before them).
            record: of the layer.
            step: the step.
        """

    def survivors(self, state: "MemoryState") -> slice | Tensor:
        """Return which columns of a state stay, ``length`` of them, in their order; by default the newest.

        Asked only where there are more: after a segment, of old slots and all of its tokens together, and of what a
        longer memory left.

        Args:
            state: see `MemoryState`. ``valid_BM`` is False where a column holds nothing, which is so in a row's first
                columns alone; a row that has no more than ``length`` tokens keeps them all.

        Returns:
            A slice of the columns, or their numbers, long (M,) for all rows or (B, M) row by row.
        """
        return slice(state.length - self.length, None)

    def fitted(self, state: "MemoryState") -> "MemoryState":
        """Return the state that a segment is to read, of one that another network may have left: `survivors` of it.

        Raises:
            ValueError: this memory cannot go on from it.
        """
        return state.columns(self.survivors(state)) if state.length > self.length else state

    def kept(self, state: "MemoryState", segment: "Segment") -> "MemoryState":
        """Return the memory after a segment, of a state that holds its slots and all of its tokens."""
        del segment
        return self.fitted(state)

    def refreshed(self, layer: int, record: Record, step: "Step") -> dict[str, Tensor]:
        """Return the entries of the slots that layer ``layer`` has changed, (B, M, ...)."""
        del layer, record, step
        return {}
