"""What a probe is: options, the tasks that it is for, and a measurement of one trained model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import torch

    from wordorder.data import PreparedData
    from wordorder.training import Recipe

Row = dict[str, Any]
"""x, value, and maybe group: a row without a group is of the whole, one with a group of a part of it. Further names are
kept as they are."""


class CannotProbe(Exception):
    """A model, or the data, does not allow a probe; the message says why, as results.json lists it under "skipped"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """How the numbers of a probe are to be read and drawn."""

    title: str
    x: str
    """Of the horizontal axis."""
    x_kind: str
    """"number", or "label" where what stands on the axis are words, in the order of the rows."""
    value: str
    """Of the vertical axis, with its unit."""
    higher_is_better: bool | None
    """None where neither is."""
    log: bool
    """Whether the vertical axis is best drawn with a logarithmic scale."""
    meaning: str
    """One sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One trained model with all that a probe may need."""

    recipe: Recipe
    model_dir: Path
    model: Any
    """In evaluation mode, on the device."""
    prepared: PreparedData
    device: torch.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a probe found."""

    rows: list[Row]
    notes: list[str] = field(default_factory=list[str])
    """What was left out and why, one sentence each; the same for all arms."""


class Probe(Protocol):
    """A frozen dataclass whose fields are the options of `[compare.probes.NAME]`; it raises BadInput where they are out
    of range."""

    tasks: ClassVar[tuple[str, ...]]
    """Tasks whose models it can measure."""

    def faults(self, recipe: Recipe) -> list[str]:
        """Say what is wrong with the options for a comparison, before anything is trained; nothing where all is well.

        Args:
            recipe: of the comparison.
        """
        ...

    def axes(self, task: str) -> Axes:
        """Return how the numbers are to be read.

        Args:
            task: of the recipe.
        """
        ...

    def measure(self, trained: Trained) -> Measured:
        """Measure one model; the same model gives the same numbers.

        Args:
            trained: the model.

        Raises:
            CannotProbe: this model cannot be measured so; the reason is listed.
        """
        ...
