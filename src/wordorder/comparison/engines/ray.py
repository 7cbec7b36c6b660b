"""Train runs as tasks of a Ray cluster: https://docs.ray.io/en/latest/ray-core/tasks.html.

Every task is one run of `Job`, which goes on from its newest checkpoint. So the comparison's folder must be one that
all machines see under the same path, or in an object store, and wordorder[ray] must be installed on all of them.
"""

# Ray's functions have no complete types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from wordorder.comparison.engines.local import GRACE_SECONDS, KILLED, ONE_THREAD, Job, Outcome
from wordorder.comparison.runs import Run
from wordorder.errors import BadInput
from wordorder.own_classes import all_registered, register_again
from wordorder.registry import Registered
from wordorder.streams import prepare_streams

RETRIES = 3
"""How often a run is begun again whose process or machine is lost; Ray's own default."""

_SECONDS = 0.5  # between two looks at what has begun
_LEAST = 0.0001  # part of a core or GPU that Ray can count


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """A cluster, and what each run takes of it."""

    address: str | None = None
    """`auto`, HOST:PORT, or None for Ray's own choice: RAY_ADDRESS, else a cluster of this machine, else a new one that
    ends with the comparison. Ignored where the caller has a session of Ray already (`ray.init`)."""
    cpus_per_run: float = 1
    """Cores that a run takes, which decide how many runs a machine has at once; threads are `training.threads`."""
    gpus_per_run: float | None = None
    """GPUs that a run takes, less than 1 to share one; None for one where the cluster has any, else none."""

    def __post_init__(self) -> None:
        faults: list[str] = []
        cpus, gpus = self.cpus_per_run, self.gpus_per_run
        if not (_LEAST <= cpus <= 1 or (cpus > 1 and cpus == int(cpus))):
            faults.append(f"--cpus-per-run: must be {_LEAST} to 1, or a whole number, got {cpus:g}")
        if gpus and not _LEAST <= gpus <= 1:
            faults.append(f"--gpus-per-run: must be 0, or {_LEAST} to 1, for a run trains on one GPU, got {gpus:g}")
        if find_spec("ray") is None:
            faults.append("--engine ray: Ray is not installed; pip install 'wordorder[ray]'")
        if faults:
            raise BadInput(faults)


class RayEngine:
    """Trains runs as Ray tasks, as many at once as the cluster has room for."""

    def __init__(self, job: Job, cluster: RayCluster, *, folder: Path, on_gpus: bool) -> None:
        """Connect to the cluster; a file in the comparison's `folder` tells the machines that they see the same one.

        Raises:
            BadInput: the cluster cannot be reached, or has no machine that a run fits on.
        """
        import ray

        address = cluster.address or os.environ.get("RAY_ADDRESS")
        _check_answers(address)
        self.job, self.ray = job, ray
        self.runs: dict[Future[Outcome], tuple[Run, Any]] = {}
        self.stopped = Counter[Path]()
        self.token = folder.absolute() / f".ray-{uuid4().hex}"
        os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))  # else those that need too much memory never end
        self.own = not ray.is_initialized()  # a user's own session stays
        try:
            if self.own:
                before = signal.getsignal(signal.SIGTERM)  # Ray would end the process at once
                try:
                    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
                finally:
                    if threading.current_thread() is threading.main_thread():
                        signal.signal(signal.SIGTERM, before)
            self._prepare(cluster, on_gpus=on_gpus)
        except (ConnectionError, ValueError, RuntimeError) as error:
            self.cancel()
            raise BadInput(f"--address: Ray at {address}: {error}; start a cluster with ray start --head") from error
        except BaseException:
            self.cancel()
            raise

    def _prepare(self, cluster: RayCluster, *, on_gpus: bool) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        gpus = cluster.gpus_per_run
        if gpus is None:
            gpus = 1 if on_gpus and ray.cluster_resources().get("GPU") else 0
        _check_room({"CPU": cluster.cpus_per_run, "GPU": gpus})
        registered = all_registered()
        options: dict[str, Any] = {"num_cpus": cluster.cpus_per_run, "num_gpus": gpus, "max_retries": RETRIES}
        environment = ONE_THREAD | {name: value for name, value in os.environ.items() if name.startswith("WORDORDER_")}
        self.task = ray.remote(_train).options(**options, runtime_env={"env_vars": environment})
        token = None if self.job.store else self.token
        if token is not None:
            token.parent.mkdir(parents=True, exist_ok=True)
            token.touch()
        self.shared: Any = ray.put((self.job, registered, os.getcwd(), token))
        # here, where it ends with the comparison and no lost machine takes it away
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        begun: Any = ray.remote(_Begun)
        self.begun = begun.options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()

    def submit(self, run: Run) -> None:
        task = self.task.remote(self.shared, run, self.begun)
        self.runs[task.future()] = run, task

    def as_completed(self, started: Callable[[Run], None]) -> Iterator[tuple[Run, Outcome]]:
        """Yield every run with its outcome; see `LocalEngine`."""
        while self.runs:
            # not ray.wait, in whose C++ code an exception that a signal raises is lost
            done, _ = wait(self.runs, timeout=_SECONDS, return_when=FIRST_COMPLETED)
            self._say_begun(started)
            for future in done:
                run, _ = self.runs.pop(future)
                outcome = self.job.ended(run, self._outcome(future))
                if outcome.status == "stopped" and self.stopped[run.folder] < RETRIES:
                    self.stopped[run.folder] += 1  # its machine was told to end, not this process
                    self.submit(run)
                    continue
                if outcome.status == "stopped":
                    outcome = replace(outcome, status="failed", reason=f"was stopped by a signal {RETRIES + 1} times")
                yield run, outcome

    def _say_begun(self, started: Callable[[Run], None]) -> None:
        running = {run.folder: run for run, _ in self.runs.values()}
        with suppress(self.ray.exceptions.RayError, TimeoutError):  # a display is no reason to stop
            for folder in self.begun.take.remote().future().result(timeout=10):
                if folder in running:  # what a short run says may come after its end
                    started(running[folder])

    def _outcome(self, future: Future[Outcome]) -> Outcome | str:
        errors = self.ray.exceptions
        try:
            return future.result()
        except errors.RayTaskError as error:
            return f"{type(error.cause).__name__}: {error.cause}"
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as error:
            return f"{KILLED}, {RETRIES + 1} times; {_first_line(error)}"
        except errors.RayError as error:
            return _first_line(error)

    def cancel(self) -> None:
        """Drop waiting runs, let those at work save their state, and leave the cluster."""
        for _, task in self.runs.values():
            self.ray.cancel(task)  # raises KeyboardInterrupt in it, at which a training saves its state and stops
        _, late = wait(self.runs, timeout=GRACE_SECONDS)
        for future in late:
            self.ray.cancel(self.runs[future][1], force=True)
        self.token.unlink(missing_ok=True)
        if self.own:
            self.ray.shutdown()


class _Begun:
    """Collects the folders of the runs that have begun; Ray does not say so by itself."""

    def __init__(self) -> None:
        self.folders: list[Any] = []

    def add(self, folder: Any) -> None:
        self.folders.append(folder)

    def take(self) -> list[Any]:
        taken, self.folders = self.folders, []
        return taken


def _train(shared: tuple[Job, Sequence[Registered], str, Path | None], run: Run, begun: Any) -> Outcome:
    job, registered, where, token = shared
    prepare_streams()
    if token is not None and not token.exists():
        folder = f"--output-dir: {token.parent} is another folder on {socket.gethostname()}"
        return Outcome(status="failed", reason=f"{folder}; name one that all machines see, or an object store")
    with suppress(OSError):
        os.chdir(where)  # a recipe's paths may be relative to it
    begun.add.remote(run.folder)
    register_again(registered)
    # before a signal can raise in it: a library that was imported by half fails in every later run of this process
    import wordorder.training.runs.fit  # noqa: F401  # pyright: ignore[reportUnusedImport]

    return job(run)


def _check_answers(address: str | None) -> None:
    """Refuse an address at which nothing answers: Ray would try it for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdecimal() or "://" in host:
        return  # "auto", or a form of Ray's own
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise BadInput(f"--address: no Ray cluster at {address}: {error}; start one with ray start --head") from error


def _check_room(needs: dict[str, float]) -> None:
    """Refuse runs that fit on no machine: Ray would wait for one without an end."""
    import ray

    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(machine.get(name, 0) >= count for name, count in needs.items()) for machine in machines):
        return
    asked = " and ".join(f"{count:g} {name}" for name, count in needs.items() if count)
    largest = " and ".join(f"{max(machine.get(name, 0) for machine in machines):g} {name}" for name in needs)
    raise BadInput(f"--cpus-per-run, --gpus-per-run: a run takes {asked}, and the largest machines have {largest}")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"
