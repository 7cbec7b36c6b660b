"""Train runs in this process, or several at once in worker processes that are imported once and stay.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process, resource_tracker
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from wordorder.comparison.runs import Run, Statistics, identity
from wordorder.errors import BadInput, RunFailed, Stopped
from wordorder.files import write_json
from wordorder.own_classes import all_registered, register_again
from wordorder.registry import Registered
from wordorder.streams import prepare_streams
from wordorder.training.loop.interruption import SIGNALS, handling, held_back
from wordorder.training.runs.folder import IDENTITY, MODEL

if TYPE_CHECKING:
    from wordorder.comparison.engines.store import Store
    from wordorder.comparison.pipeline import Pipeline
    from wordorder.training import Recipe

GRACE_SECONDS = 120.0
"""Seconds that a run may take to save its state after a signal."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Environment of a process that trains; torch's libraries read it when they load."""

KILLED = "its process was killed (by the system when memory runs out, or by hand)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a training, in plain values: an exception from another process might not unpickle."""

    status: Literal["finished", "failed", "stopped"]
    reason: str = ""
    seconds: float = 0.0


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
        except KeyboardInterrupt:  # while it copied
            return Outcome(status="stopped")

    def ended(self, run: Run, outcome: Outcome | str) -> Outcome:
        """Bring the files of a run that has ended from the object store to its folder, and return its outcome.

        `outcome` may be the reason why its process has none: one that was killed in a probe has trained before.
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
    start = time.monotonic()
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
        # which a later comparison checks
        write_json(run.folder / IDENTITY, identity(run, statistics[run.fold]))
        release_memory()
        if not run.finished():
            # a learning rate is chosen on the validation split, so the test split is not scored for it
            pipeline.train(run.recipe, run.folder, run.seed, test=run.trial is None)
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


VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the devices that a process sees."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def devices_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the CUDA devices of this process, as CUDA_VISIBLE_DEVICES names them; none if the recipe uses the CPU."""
    import torch

    if recipe.training.device == "cpu":
        return ()
    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return tuple(named[:count] if named else map(str, range(count)))


def placements(devices: Sequence[str], workers: int, runs: int) -> list[dict[str, str]]:
    """Return the environment of each worker process; an empty list if runs are trained one after the other here.

    Every CUDA device has a worker, which sees no other one; more workers than devices share them in turn. Without CUDA
    devices (a CPU, or MPS, which is one) there are as many workers as the recipe asks for, and never more than runs.
    """
    if workers == 1 and len(devices) < 2:
        return []
    count = max(1, min(max(workers, len(devices)), runs))
    return [{VISIBLE: devices[number % len(devices)]} if devices else {} for number in range(count)]


class InThisProcess(Executor):
    """Runs each task here, and at once, with training.threads threads or torch's own number."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        task: Future[_T] = Future()
        task.set_result(fn(*args, **kwargs))
        return task


class LocalEngine:
    """Trains one run after the other in this process, or several at once in worker processes, one for each place.

    Each process has its executor: when the system kills one, only the run that it worked on is lost, and known.
    """

    def __init__(self, job: Job, *, places: Sequence[Mapping[str, str]]) -> None:
        self.job = job
        self.workers = [Worker(place) for place in places]
        self.idle: deque[Executor] = deque(self.workers or [InThisProcess()])
        self.waiting = deque[Run]()
        self.busy: dict[Future[Outcome], tuple[Run, Executor]] = {}

    def submit(self, run: Run) -> None:
        self.waiting.append(run)

    def as_completed(self, started: Callable[[Run], None]) -> Iterator[tuple[Run, Outcome]]:
        """Yield every run that was handed over with its outcome, as it ends; `started` is called when one begins.

        Raises:
            Stopped: a signal asked to stop; the states of runs are saved.
        """
        while self.waiting or self.busy:
            while self.waiting and self.idle:
                run, executor = self.waiting.popleft(), self.idle.popleft()
                started(run)
                in_worker = isinstance(executor, Worker)
                task = executor.submit(_work, self.job, run) if in_worker else executor.submit(self.job, run)
                self.busy[task] = run, executor
            done, _ = wait(self.busy, return_when=FIRST_COMPLETED)
            for task in done:
                run, executor = self.busy.pop(task)
                try:
                    outcome: Outcome | str = task.result()
                except BrokenProcessPool:
                    outcome = KILLED
                    if isinstance(executor, Worker):
                        broken, executor = executor, Worker(executor.place)
                        self.workers = [executor if worker is broken else worker for worker in self.workers]
                self.idle.append(executor)
                outcome = self.job.ended(run, outcome)
                if outcome.status == "stopped":
                    raise Stopped("stopped by a signal; run the same command again to go on")
                yield run, outcome

    def cancel(self) -> None:
        """Drop waiting runs, let those at work save their state, and end the processes."""
        busy = {task: executor for task, (_, executor) in self.busy.items() if isinstance(executor, Worker)}
        # a signal may have come when a run was just handed over, and its task was not noted yet
        for worker in [worker for worker in self.workers if worker not in self.idle]:
            worker.send(signal.SIGTERM)  # at which a training saves its state and stops
        _, late = wait(busy, timeout=GRACE_SECONDS)
        for worker in self.workers:
            worker.shutdown(wait=not late, cancel_futures=True)
        for task in late:
            busy[task].send(getattr(signal, "SIGKILL", signal.SIGTERM))


class Worker(ProcessPoolExecutor):
    """One process that imports torch once and trains run after run, with one thread or with training.threads."""

    def __init__(self, place: Mapping[str, str] | None = None) -> None:
        from accelerate.utils import patch_environment  # pyright: ignore[reportUnknownVariableType]

        self.place = dict(place or {})
        registered = all_registered()
        _start_tracker()
        # spawn, not fork: a forked torch with threads may hang
        super().__init__(1, mp_context=get_context("spawn"), initializer=start_worker, initargs=(registered,))
        # a process whose parent breaks off its start finds no task to read, and says so at length
        with held_back(), patch_environment(**ONE_THREAD, **self.place):
            self.pid = self.submit(os.getpid)  # the first task starts the process

    def send(self, which: int) -> None:
        with suppress(BrokenProcessPool, ProcessLookupError, TimeoutError):
            os.kill(self.pid.result(timeout=60), which)


def _start_tracker() -> None:
    """Start multiprocessing's tracker of semaphores, which inherits blocked signals, so that it outlives a terminal."""
    if not hasattr(signal, "pthread_sigmask"):
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(job: Job, run: Run) -> Outcome:
    # from here on a signal raises KeyboardInterrupt, and the state is saved
    with handling([number for number in SIGNALS if number != signal.SIGINT], signal.default_int_handler):
        return job(run)


def start_worker(registered: Sequence[Registered] = ()) -> None:
    """Prepare a new worker process: signals that end it, an end when its parent ends, and the user's own encodings."""
    prepare_streams()
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C then reaches the parent alone, which passes it on once
    for number in SIGNALS:
        if number != signal.SIGINT:
            # Between runs it ends without a word. SystemExit would not do: the pool catches it while it sends a result.
            signal.signal(number, lambda number, frame: os._exit(128 + number))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    register_again(registered)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()  # a killed comparison must leave no training that writes beside the next one
        os._exit(1)
