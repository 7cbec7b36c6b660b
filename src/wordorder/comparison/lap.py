"""Time one lap: a short training of an arm, by the code that trains it, of which only the times are kept."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.training.progress import Silent

if TYPE_CHECKING:
    from wordorder.training import Recipe

WARM_UP = 2
"""Number of steps before the clock starts: the first ones load kernels, allocate memory and make the optimiser's
state."""

QUIET: dict[str, Any] = {"training.report_to": "none", "training.keep_steps": [], "training.logging_steps": 10**9}
STEPS_ONLY: dict[str, Any] = {
    **QUIET,
    "training.eval_strategy": "no",
    "training.save_strategy": "no",
    "training.load_best_model_at_end": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """The times of one short training, in seconds by the wall clock, but for `clock_seconds`.

    Plain numbers only, because they come from another process.
    """

    start: float
    """Seconds from the call to the first step: the model is built, the trainer is set up; the data is prepared
    before."""
    steps: int = 0
    """Number of steps that were timed."""
    wall_seconds: float = 0.0
    """Seconds of these steps."""
    clock_seconds: float = 0.0
    """Seconds of these steps by the clock that arms are compared with, see `step_clock`."""
    evaluation: float = 0.0
    """Seconds of an evaluation with the checkpoint that is saved beside it, and the step before it; 0 without one."""
    finish: float = 0.0
    """Seconds from the last step to the end: its evaluation, the final scores, the saved model."""
    total_steps: int = 0
    """Number of steps of the whole training, of which the lap is the beginning."""
    prepare: float = 0.0
    """Seconds to prepare the data; nearly 0 if this process has prepared it before."""
    process: int = 0
    """Number of the process."""
    age: float = 0.0
    """Seconds since the process was started, when the lap began."""
    clock: str = "wall"
    """Clock of `clock_seconds`: "process" or "wall"."""


class Enough(Exception):
    """Raised to end a training after its last timed step."""


def step_clock(recipe: Recipe) -> tuple[str, Callable[[], float]]:
    """Return the clock that steps are timed with, and its name: "process" or "wall".

    On one CPU thread it is the CPU time of this process: nearly all of a step computes, and what other programs take
    of the core meanwhile is not in it. With several threads the CPU times of all would be added up, on an accelerator
    and with processes that load data the CPU only waits: there it is the wall clock.
    """
    import torch

    threads = recipe.training.get("threads") or torch.get_num_threads()
    on_cpu = recipe.training.get("use_cpu") or not torch.accelerator.is_available()
    if on_cpu and threads == 1 and not recipe.training.get("dataloader_num_workers"):
        return "process", time.process_time
    return "wall", time.perf_counter


def run_lap(recipe: Recipe, prepared: Any, folder: Path, seed: int, steps: int | None) -> Lap:
    """Begin a training and time its steps; or train two steps, and time the start, an evaluation and the end.

    Args:
        recipe: of the arm; evaluation and checkpoints are turned off while steps are timed.
        prepared: the data for this seed.
        folder: becomes a run folder; whoever calls removes it.
        seed: of the weights and the batches, so that all arms see the same ones.
        steps: how many to time after the warm-up; None times the start, an evaluation and the end.
    """
    return _time_steps(recipe, prepared, folder, seed, steps) if steps else _time_around(recipe, prepared, folder, seed)


def _time_steps(recipe: Recipe, prepared: Any, folder: Path, seed: int, steps: int) -> Lap:
    recipe = recipe.with_overrides(STEPS_ONLY)
    name, clock = step_clock(recipe)
    watch = _Watch(clock, last=WARM_UP + steps)
    begun = time.perf_counter()
    _train(recipe, prepared, folder, seed, watch)
    # the step that the clock starts after; a training of fewer steps has fewer to warm up with
    first = min(WARM_UP, len(watch.wall) - 1) - 1
    since = (watch.wall[first], watch.clock[first]) if first >= 0 else (watch.started, watch.clock_started)
    return Lap(
        start=watch.started - begun,
        steps=len(watch.wall) - 1 - first,
        wall_seconds=watch.wall[-1] - since[0],
        clock_seconds=watch.clock[-1] - since[1],
        total_steps=watch.total,
        clock=name,
    )


def _time_around(recipe: Recipe, prepared: Any, folder: Path, seed: int) -> Lap:
    changes: dict[str, Any] = {**QUIET, "training.max_steps": 2, "training.eval_delay": 0}
    for kind in ("eval", "save"):
        if recipe.training.get(f"{kind}_strategy", "no") != "no":
            changes |= {f"training.{kind}_strategy": "steps", f"training.{kind}_steps": 1}
    recipe = recipe.with_overrides(changes)
    watch = _Watch(time.perf_counter)
    begun = time.perf_counter()
    _train(recipe, prepared, folder, seed, watch)
    ended = _now()
    evaluates = recipe.training.get("eval_strategy", "no") != "no"
    return Lap(
        start=watch.started - begun,
        evaluation=watch.wall[1] - watch.wall[0] if evaluates else 0.0,
        finish=ended - watch.wall[-1],
    )


def _train(recipe: Recipe, prepared: Any, folder: Path, seed: int, watch: _Watch) -> None:
    from wordorder.training import run

    try:
        run(recipe, output_dir=folder, progress=watch, prepared=prepared, seed=seed)
    except Enough:
        pass


def _now() -> float:
    """Return the time of the wall clock, once the device has done all its work."""
    import torch

    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter()


class _Watch(Silent):
    """Records when the training starts and when each step is done.

    Args:
        clock: read beside the wall clock.
        last: after this step `Enough` is raised; None lets the training end.
    """

    def __init__(self, clock: Callable[[], float], *, last: int | None = None) -> None:
        self._clock, self._last = clock, last
        self.started = self.clock_started = 0.0
        self.total = 0
        self.wall: list[float] = []
        self.clock: list[float] = []
        self._handler: Any = None

    def start(self, step: int, total: int) -> None:
        self.total = total
        self._handler = signal.getsignal(signal.SIGTERM)
        self.started, self.clock_started = _now(), self._clock()

    def update(self, step: int, loss: float, tokens: int) -> None:
        if step <= len(self.wall):  # the end of an epoch tells its last step twice
            return
        # between the first and the last step that count nothing waits for the device, as in a training
        waits = self._last is None or step <= WARM_UP or step in (self._last, self.total)
        self.wall.append(_now() if waits else time.perf_counter())
        self.clock.append(self._clock())
        # a training that was asked to stop has put the former handler back, and stops by itself after this step
        if step == self._last and signal.getsignal(signal.SIGTERM) == self._handler:
            raise Enough
