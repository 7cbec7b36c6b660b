"""The interface of a probe: options, the tasks that it is for, and a measurement of one trained model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from wordorder.tasks import TASKS, Task

if TYPE_CHECKING:
    import torch

    from wordorder.data import PreparedData
    from wordorder.training import Recipe

Row = dict[str, Any]
"""One row of numbers: x, value, maybe group, for a part of the whole, and further names."""


class CannotProbe(Exception):
    """Raised if a model or the data does not allow a probe, with the reason for "skipped" in results.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The meaning of a probe's numbers, and how they are drawn."""

    title: str
    x: str
    """Label of the horizontal axis."""
    x_kind: str
    """"number", or "label" for words, in the order of the rows."""
    value: str
    """Label of the vertical axis, with its unit."""
    higher_is_better: bool | None
    """True or False; None if neither direction is better."""
    log: bool
    """True if the vertical axis is best drawn with a logarithmic scale."""
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One trained model with everything that a probe may need."""

    recipe: Recipe
    model_dir: Path
    model: Any
    """The model in evaluation mode, on the device."""
    prepared: PreparedData
    device: torch.device

    @property
    def task(self) -> Task[Any]:
        """The task that the model was trained for."""
        return TASKS[self.recipe.task.name]

    @property
    def examples(self) -> Any:
        """The examples of the reported split, of the task's kind."""
        return self.prepared.test if self.prepared.test is not None else self.prepared.validation


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements of a probe."""

    rows: list[Row]
    notes: list[str] = field(default_factory=list[str])
    """Notes on what was left out and why, one sentence each; the same for all arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe(ABC):
    """A measurement of trained models, whose fields are the options of `[compare.probes.NAME]`.

    Raises:
        ValueError: an option is out of range; a comparison reports it as BadInput.
    """

    measures_answers: ClassVar[bool] = False
    """True if it measures the answers of generated tasks; others take a language model for one of running text."""

    def can_measure(self, task: Task[Any]) -> bool:
        """Tell whether the models of a task can be measured."""
        return task.masks_tokens or task.running_text or task.labels == "class"

    def faults(self, recipe: Recipe) -> list[str]:
        """Return the faults of the options for a comparison, before anything is trained; [] if there are none."""
        return []

    @abstractmethod
    def axes(self, task: str) -> Axes:
        """Return the axes of the numbers: their labels and their meaning."""

    @abstractmethod
    def measure(self, trained: Trained) -> Measured:
        """Measure one model; the same model gives the same numbers.

        Raises:
            CannotProbe: this model cannot be measured so; the reason is listed.
        """


def check_different(name: str, numbers: Sequence[int]) -> None:
    """Raise ValueError unless an option is of different whole numbers of at least 2."""
    if not numbers or min(numbers) < 2 or len(set(numbers)) < len(numbers):
        raise ValueError(f"{name} must be different whole numbers of at least 2, got {list(numbers)}")


def check_at_least(name: str, value: int, least: int) -> None:
    """Raise ValueError if an option is too small."""
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
