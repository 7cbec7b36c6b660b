"""Run trainings in this process, or several at once in worker processes that are imported once and stay.

Where there are CUDA devices each has a worker that sees no other one; see `placements`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from wordorder.comparison.fairness.own_arm import load_again
from wordorder.comparison.pipeline import Pipeline
from wordorder.comparison.runs import Run, Statistics, claim
from wordorder.encodings import Source, registered_encodings
from wordorder.errors import BadInput, Stopped
from wordorder.streams import prepare_streams
from wordorder.training.loop.interruption import SIGNALS
from wordorder.training.runs.folder import MODEL

if TYPE_CHECKING:
    from wordorder.training import Recipe


GRACE_SECONDS = 120.0
"""Seconds that a worker may take to save its state after a signal."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Environment variables that torch's libraries read when they load, so they must be set before the process begins."""

KILLED = "its process was killed (by the system when memory runs out, or by hand)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a training. Plain values only: an exception from another process might not unpickle."""

    status: Literal["finished", "failed", "stopped"]
    reason: str = ""
    seconds: float = 0.0


def execute(pipeline: Pipeline, run: Run, statistics: Mapping[str, Any]) -> Outcome:
    """Train one run to its end, resumed if it was stopped, measure its probes, and return its outcome."""
    start = time.monotonic()
    try:
        claim(run, statistics)
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


def team_for(
    pipeline: Pipeline, statistics: Statistics, *, workers: int, runs: int, devices: Sequence[str]
) -> InThisProcess | InWorkers:
    """Return the trainer of the runs: this process, or workers on the given devices; see `placements`."""
    places = placements(devices, workers=workers, runs=runs)
    return InWorkers(pipeline, statistics, places=places) if places else InThisProcess(pipeline, statistics)


def release_memory() -> None:
    """Return freed memory to the system, so that a run's peak memory does not include that of the run before."""
    gc.collect()
    with suppress(OSError, AttributeError):  # not glibc: the allocator keeps what it keeps
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class InThisProcess:
    """Trains one run after the other here, with training.threads threads or torch's own number."""

    def __init__(self, pipeline: Pipeline, statistics: Statistics) -> None:
        self.pipeline, self.statistics = pipeline, statistics

    def work(self, runs: Iterable[Run], on_start: Callable[[Run], None]) -> Iterator[tuple[Run, Outcome]]:
        """Yield every run with its outcome, as it ends.

        Raises:
            Stopped: a signal asked to stop; the run's state is saved.
        """
        for run in runs:
            on_start(run)
            outcome = execute(self.pipeline, run, self.statistics[run.fold])
            if outcome.status == "stopped":
                raise Stopped("stopped by a signal; run the same command again to go on")
            yield run, outcome

    def close(self) -> None:
        """Do nothing: there is no process to end."""


class InWorkers:
    """Trains several runs at once, each in a process of its own with one thread, or with training.threads.

    One executor per worker rather than one for all: when the system kills a process, the run that it worked on is known
    and is the only one that is lost.

    Args:
        pipeline: the functions to call; they are pickled by name.
        statistics: of the prepared data of each fold; its fingerprint is written into each run's folder.
        places: the environment of each process, from `placements`.
    """

    def __init__(self, pipeline: Pipeline, statistics: Statistics, *, places: Sequence[Mapping[str, str]]) -> None:
        self.pipeline, self.statistics = pipeline, statistics
        self.idle: deque[Worker] = deque(Worker(place) for place in places)
        self.busy: dict[Future[Outcome], tuple[Run, Worker]] = {}

    def work(self, runs: Iterable[Run], on_start: Callable[[Run], None]) -> Iterator[tuple[Run, Outcome]]:
        """Yield every run with its outcome, as it ends.

        Raises:
            Stopped: a worker was asked to stop by a signal.
        """
        waiting = deque(runs)
        while waiting or self.busy:
            while waiting and self.idle:
                run, worker = waiting.popleft(), self.idle.popleft()
                on_start(run)
                task = worker.pool.submit(execute, self.pipeline, run, self.statistics[run.fold])
                self.busy[task] = run, worker
            done, _ = wait(self.busy, return_when=FIRST_COMPLETED)
            for future in done:
                run, worker = self.busy.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    # one that was killed in a probe has trained its run before
                    outcome = Outcome(status="finished" if run.finished() else "failed", reason=KILLED)
                    worker = Worker(worker.place)
                self.idle.append(worker)
                if outcome.status == "stopped":
                    raise Stopped("a worker was stopped by a signal; run the same command again to go on")
                yield run, outcome

    def close(self) -> None:
        """Let busy workers save their state, then end all of them."""
        for _, worker in self.busy.values():
            worker.ask_to_stop()
        _, late = wait(self.busy, timeout=GRACE_SECONDS)
        for worker in [*self.idle, *(worker for _, worker in self.busy.values())]:
            worker.pool.shutdown(wait=not late, cancel_futures=True)
        for future in late:
            self.busy[future][1].kill()


@contextmanager
def environment(values: Mapping[str, str]) -> Generator[None]:
    """Set environment variables for the processes that are started within the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Worker:
    """One process that imports torch once and trains run after run.

    Args:
        place: variables of its environment besides `ONE_THREAD`, such as the device that it sees.
    """

    def __init__(self, place: Mapping[str, str] | None = None) -> None:
        self.place = dict(place or {})
        own = tuple(registered_encodings().values())
        # spawn, not fork: a forked torch with threads may hang
        self.pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=start_worker, initargs=(own,))
        with environment({**ONE_THREAD, **self.place}):
            self.pid = self.pool.submit(os.getpid)  # the first task starts the process

    def ask_to_stop(self) -> None:
        """Send the signal at which a training saves its state and stops."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self._send(getattr(signal, "SIGKILL", signal.SIGTERM))

    def _send(self, which: int) -> None:
        with suppress(BrokenProcessPool, ProcessLookupError, TimeoutError):
            os.kill(self.pid.result(timeout=60), which)


def start_worker(own: Sequence[Source] = ()) -> None:
    """Prepare a new worker process: signals that stop it, an end when its parent ends, and the user's own encodings.

    Args:
        own: encodings that the parent registered.
    """
    prepare_streams()
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C then reaches the parent alone, which passes it on once
    for number in SIGNALS:
        if number != signal.SIGINT:
            signal.signal(number, _raise_stopped)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    load_again(own)


def _raise_stopped(_signal: int, _frame: FrameType | None) -> None:
    raise Stopped("stopped by a signal")


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()  # a killed comparison must not leave a training that writes into the folder beside the next one
        os._exit(1)


VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the devices that a process sees; torch reads it when it first looks for them."""


def devices_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the CUDA devices of this process, as CUDA_VISIBLE_DEVICES names them; none if the recipe uses the CPU."""
    import torch

    if recipe.training.get("use_cpu"):
        return ()
    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return tuple(named[:count] if named else map(str, range(count)))


def placements(devices: Sequence[str], *, workers: int, runs: int) -> list[dict[str, str]]:
    """Return the environment of each worker process; an empty list if runs are trained one after the other here.

    Every CUDA device has a worker, which sees no other device; more workers than devices share them in turn, and more
    workers than runs would have nothing to do. Without CUDA devices (a CPU, or MPS, which is one device) there are as
    many workers as the recipe asks for.

    Args:
        devices: from `devices_of`.
        workers: `compare.workers`.
        runs: how many trainings there are.
    """
    if workers == 1 and len(devices) < 2:
        return []
    count = max(1, min(max(workers, len(devices)), runs))
    return [{VISIBLE: devices[number % len(devices)]} if devices else {} for number in range(count)]
