"""At which steps a run logs, scores validation and saves, as a pure function of the step."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

Every = float | Literal["epoch", "never"]
"""Steps between two times, a share of the run below 1; or at the end of each epoch; or never."""


class Due(NamedTuple):
    """Tell which work follows a step."""

    log: bool
    evaluate: bool
    save: bool

    def __bool__(self) -> bool:
        return self.log or self.evaluate or self.save


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """Tell what is due after each step of a run; the last step is always scored and saved, but where that is "never".

    A share of the run is rounded up to whole steps, as in transformers. A run that is shorter than the steps between
    two entries of the log has ten.
    """

    steps: int
    """Optimizer steps of the run."""
    per_epoch: int
    """Optimizer steps of an epoch; the last epoch may have fewer."""
    log: Every
    evaluate: Every
    save: Every
    keep: frozenset[int] = frozenset()
    """Steps whose checkpoints are saved whatever else is."""

    def due(self, step: int) -> Due:
        """Return what is due after so many steps."""
        ends = step % self.per_epoch == 0 or step == self.steps
        log = self._due(self.log, step, ends)
        if not isinstance(self.log, str) and self._every(self.log) > self.steps:
            log = step % max(1, self.steps // 10) == 0
        last = step == self.steps
        return Due(
            log=log,
            evaluate=self._due(self.evaluate, step, ends) or (last and self.evaluate != "never"),
            save=self._due(self.save, step, ends) or (last and self.save != "never") or step in self.keep,
        )

    def _due(self, every: Every, step: int, ends: bool) -> bool:
        if isinstance(every, str):
            return every == "epoch" and ends
        return step % self._every(every) == 0

    def _every(self, every: float) -> int:
        return int(every) if every >= 1 else max(1, math.ceil(self.steps * every))
