"""The base class of memories of earlier segments."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from wordorder.attention import LayerStep, Record

if TYPE_CHECKING:
    from wordorder.memory.segment import Step


@dataclass(frozen=True)
class Memory(ABC):
    """The base of memories of earlier segments, which networks are built with: a value that owns its step.

    A memory says what a layer reads (`rows`), how it attends (`layer_step`) and what tokens leave (`leaves`).

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
        """Return the shape that one slot has in each tensor of the state, by name."""

    @property
    def window(self) -> int | None:
        """Most keys that a token sees, itself included; None = all that are there."""
        return None

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
        """Return what the tokens of a step leave in layer ``layer``, by the names of its slots, (B, T, ...), detached.

        Args:
            layer: from 0.
            x_BTC: the tokens' states that the layer reads (with slots before them where they came with them).
            out_BTC: what it gives for them (and for slots that have queries, before them).
            record: of the layer.
            step: the step.
        """

    def survivors(self, valid_BS: Tensor | None, columns: int) -> slice | Tensor:
        """Return which of the slots and tokens stay, at most ``length``, in their order; by default the newest.

        Args:
            valid_BS: bool, False where a column holds nothing, which is so in a row's first columns alone; None = all
                columns hold a token.
            columns: number of columns, slots first.

        Returns:
            A slice of the columns, or their numbers, long (M,) for all rows or (B, M) row by row.
        """
        del valid_BS
        return slice(max(columns - self.length, 0), columns)

    def refreshed(self, layer: int, record: Record, step: "Step") -> dict[str, Tensor]:
        """Return the entries of the slots that layer ``layer`` has changed, (B, M, ...)."""
        del layer, record, step
        return {}
