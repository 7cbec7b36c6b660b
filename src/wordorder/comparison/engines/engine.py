"""The interface of engines, and one run of a comparison from its beginning to its outcome."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from wordorder.comparison.runs import Run, Statistics, identity
from wordorder.durable import write_json
from wordorder.errors import BadInput, RunFailed, Stopped
from wordorder.training.runs.folder import IDENTITY, MODEL

if TYPE_CHECKING:
    from wordorder.comparison.engines.store import Store
    from wordorder.comparison.pipeline import Pipeline

GRACE_SECONDS = 120.0
"""Seconds that a run may take to save its state after a signal."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Environment of a process that trains. torch's libraries read it when they load, so it must be set before."""

KILLED = "its process was killed (by the system when memory runs out, or by hand)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a training. Plain values only: an exception from another process might not unpickle."""

    status: Literal["finished", "failed", "stopped"]
    reason: str = ""
    seconds: float = 0.0


class Engine(Protocol):
    """Trains the runs of a comparison, several at a time."""

    def submit(self, run: Run) -> None:
        """Hand over a run; it begins when there is room for it."""
        ...

    def as_completed(self, started: Callable[[Run], None]) -> Iterator[tuple[Run, Outcome]]:
        """Yield every run that was handed over with its outcome, as it ends.

        Args:
            started: called when a run begins.

        Raises:
            Stopped: a signal asked to stop; the states of runs are saved.
        """
        ...

    def cancel(self) -> None:
        """Drop waiting runs, let those at work save their state, and end the processes."""
        ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """The parts that all runs of a comparison share, and the training of one of them."""

    pipeline: Pipeline
    statistics: Statistics
    store: Store | None = None
    """The object store that holds the comparison's folder; None for a folder that all processes see."""

    def __call__(self, run: Run) -> Outcome:
        """Train one run to its end, resumed if it was stopped, measure its probes, and return its outcome."""
        if self.store is None:
            return execute(self.pipeline, run, self.statistics)
        try:
            with self.store.working_copy(run.folder) as folder:
                return execute(self.pipeline, replace(run, folder=folder), self.statistics)
        except RunFailed as error:  # of the store
            return Outcome(status="failed", reason=str(error))

    def ended(self, run: Run, outcome: Outcome | str) -> Outcome:
        """Bring the files of a run that has ended from the object store to its folder, and return its outcome.

        Args:
            run: the run.
            outcome: its outcome, or the reason why its process has none: one that was killed in a probe has trained its
                run before.
        """
        if self.store is not None:
            try:
                self.store.fetch(run.folder)
            except RunFailed as error:
                return Outcome(status="failed", reason=str(error))
        if isinstance(outcome, str):
            return Outcome(status="finished" if run.finished() else "failed", reason=outcome)
        return outcome


def execute(pipeline: Pipeline, run: Run, statistics: Statistics) -> Outcome:
    """Train one run in its folder."""
    start = time.monotonic()
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
        # which a later comparison checks
        write_json(run.folder / IDENTITY, identity(run, statistics[run.fold]))
        release_memory()
        if not run.finished():
            pipeline.train(run.recipe, run.folder, run.seed)
        if run.finished() and run.to_probe():
            pipeline.probe(run.recipe, run.folder / MODEL, run.folder, run.probes)
    except (Stopped, KeyboardInterrupt):
        return Outcome(status="stopped", seconds=time.monotonic() - start)
    except Exception as error:  # whatever breaks one arm must not lose the others
        reason = " ".join(error.faults) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
        return Outcome(status="failed", reason=reason, seconds=time.monotonic() - start)
    if not run.finished():
        return Outcome(status="failed", reason="the training ended without writing metrics.json")
    return Outcome(status="finished", seconds=time.monotonic() - start)


def release_memory() -> None:
    """Return freed memory to the system, so that a run's peak memory does not include that of the run before."""
    gc.collect()
    with suppress(OSError, AttributeError):  # not glibc: the allocator keeps what it keeps
        ctypes.CDLL("libc.so.6").malloc_trim(0)
