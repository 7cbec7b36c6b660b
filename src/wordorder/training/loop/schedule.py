"""Learning rates, and what is due, as pure functions of the step."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

SCHEDULES = ("linear", "cosine", "constant", "inverse-sqrt", "warmup-stable-decay")
_TIMESCALE = 10_000


def warmup_of(warmup: float, steps: int) -> int:
    """Return the steps of the warm-up: a number below 1 is a share of all steps, rounded up."""
    return int(warmup) if warmup >= 1 else math.ceil(steps * warmup)


def factor(kind: str, step: int, *, steps: int, warmup: int, decay: int = 0) -> float:
    """Return the learning rate of a step as a share of the peak, 0 to 1.

    In all schedules it rises evenly from 0 at step 0 to 1 at step `warmup`; with w = warmup, s = step::

        linear                 (steps - s) / (steps - w)
        cosine                 (1 + cos(pi (s - w) / (steps - w))) / 2
        constant               1
        inverse-sqrt           sqrt(t / (s - w + t)), t = w, or 10,000 without a warm-up
        warmup-stable-decay    1, then 1 - sqrt(p), where p goes from 0 to 1 in the last `decay` steps

    The first four are transformers' to the bit. The decay by the root is that of Haegele et al. 2024,
    https://arxiv.org/abs/2405.18392, who find it better than an even one.

    Args:
        kind: one of `SCHEDULES`.
        step: steps that were done before this one, from 0.
        steps: of the run.
        warmup: steps in which the rate rises.
        decay: steps in which warmup-stable-decay falls.
    """
    if step < warmup:
        return step / max(1, warmup)
    left = max(1, steps - warmup)
    match kind:
        case "linear":
            return max(0.0, (steps - step) / left)
        case "cosine":
            return max(0.0, 0.5 * (1.0 + math.cos(math.pi * 0.5 * 2.0 * ((step - warmup) / left))))
        case "inverse-sqrt":
            timescale = warmup or _TIMESCALE
            return 1.0 / math.sqrt((step + timescale - warmup) / timescale)
        case "warmup-stable-decay":
            decay = min(decay, left)  # it begins after the warm-up
            fallen = (step - (steps - decay)) / max(1, decay)
            return 1.0 if fallen <= 0 else max(0.0, 1.0 - math.sqrt(min(1.0, fallen)))
        case _:
            return 1.0


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
