"""Train runs as tasks of a Ray cluster: https://docs.ray.io/en/latest/ray-core/tasks.html.

Ray schedules, places and retries; every task is one run of `Job`, which goes on from its newest checkpoint. So the
comparison's folder must be one that all machines see under the same path, or an address of an object store, and the
package must be installed on all of them. Without Ray nothing of this module can be used (`pip install wordorder[ray]`).
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
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from wordorder.comparison.engines.engine import GRACE_SECONDS, KILLED, ONE_THREAD, Job, Outcome, lost
from wordorder.comparison.fairness.own_arm import load_again
from wordorder.comparison.runs import Run
from wordorder.encodings import Source, registered_encodings
from wordorder.errors import BadInput, Stopped
from wordorder.streams import prepare_streams

RETRIES = 3
"""How often a run is begun again whose process or machine is lost; Ray's own default for tasks."""

_SECONDS = 0.5  # between two looks at what has begun


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """A cluster, and what each run takes of it."""

    address: str | None = None
    """`auto`, HOST:PORT, or None for Ray's own choice: RAY_ADDRESS, else the cluster that was started on this machine,
    else a new one of this machine's cores, which ends with the comparison."""
    cpus_per_run: float = 1
    """Cores that a run takes. They decide how many runs a machine has at once; `training.threads` how many threads."""
    gpus_per_run: float | None = None
    """GPUs that a run takes, less than 1 to share one; None for one where the cluster has any, else none."""

    def __post_init__(self) -> None:
        faults: list[str] = []
        if not self.cpus_per_run > 0:
            faults.append(f"--cpus-per-run: must be above 0, got {self.cpus_per_run:g}")
        if self.gpus_per_run is not None and not 0 <= self.gpus_per_run <= 1:
            faults.append(f"--gpus-per-run: must be 0 to 1, for a run trains on one GPU, got {self.gpus_per_run:g}")
        if find_spec("ray") is None:
            faults.append("--engine ray: Ray is not installed; pip install 'wordorder[ray]'")
        if faults:
            raise BadInput(faults)


class RayEngine:
    """Trains runs as Ray tasks, as many at once as the cluster has room for."""

    def __init__(self, job: Job, cluster: RayCluster, *, on_gpus: bool) -> None:
        """Connect to the cluster.

        Args:
            job: what all runs share.
            cluster: the cluster.
            on_gpus: whether the recipe may train on a GPU.

        Raises:
            BadInput: the cluster cannot be reached, or has no machine that a run fits on.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        _check_answers(cluster.address)
        self.job, self.ray = job, ray
        self.own = not ray.is_initialized()  # a user's own session stays
        try:
            if self.own:
                with _same_signals():
                    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise BadInput(
                f"--address: no Ray cluster at {cluster.address}: {_first_line(error)}; start one with ray start --head"
            ) from error
        try:
            gpus = cluster.gpus_per_run
            if gpus is None:
                gpus = 1 if on_gpus and ray.cluster_resources().get("GPU") else 0
            _check_room({"CPU": cluster.cpus_per_run, "GPU": gpus})
        except BadInput:
            self._disconnect()
            raise
        own = tuple(registered_encodings().values())
        options: dict[str, Any] = {"num_cpus": cluster.cpus_per_run, "num_gpus": gpus, "max_retries": RETRIES}
        environment = ONE_THREAD | {name: value for name, value in os.environ.items() if name.startswith("WORDORDER_")}
        self.task = ray.remote(_train).options(**options, runtime_env={"env_vars": environment})
        self.shared: Any = ray.put((job, own, os.getcwd()))
        # here, where it ends with the comparison and no lost machine takes it away
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        begun: Any = ray.remote(_Begun)
        self.begun = begun.options(num_cpus=0, scheduling_strategy=here).remote()
        self.runs: dict[Any, Run] = {}

    def submit(self, run: Run) -> None:
        """Hand over a run; see `Engine`."""
        self.runs[self.task.remote(self.shared, run, self.begun)] = run

    def as_completed(self, started: Callable[[Run], None]) -> Iterator[tuple[Run, Outcome]]:
        """Yield every run with its outcome; see `Engine`."""
        while self.runs:
            done, _ = self.ray.wait([*self.runs], num_returns=1, timeout=_SECONDS)
            open_runs = {run.folder: run for run in self.runs.values()}
            for folder in self.ray.get(self.begun.take.remote()):
                if folder in open_runs:  # what a short run says may come after its end
                    started(open_runs[folder])
            for task in done:
                run = self.runs.pop(task)
                try:
                    outcome = self.ray.get(task)
                except self.ray.exceptions.RayError as error:
                    outcome = f"{KILLED}, {RETRIES + 1} times; {_first_line(error)}"
                self.job.fetch(run)
                if isinstance(outcome, str):
                    outcome = lost(run, outcome)
                if outcome.status == "stopped":
                    raise Stopped("stopped by a signal; run the same command again to go on")
                yield run, outcome

    def cancel(self) -> None:
        """Drop waiting runs, let those at work save their state, and leave the cluster."""
        for task in self.runs:
            self.ray.cancel(task)  # raises KeyboardInterrupt in it, at which a training saves its state and stops
        if self.runs:
            self.ray.wait([*self.runs], num_returns=len(self.runs), timeout=GRACE_SECONDS)
        self._disconnect()

    def _disconnect(self) -> None:
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


def _train(shared: tuple[Job, Sequence[Source], str], run: Run, begun: Any) -> Outcome:
    """Train one run in a worker of Ray."""
    job, own, where = shared
    prepare_streams()
    with suppress(OSError):
        os.chdir(where)  # a recipe's paths may be relative to it
    begun.add.remote(run.folder)
    load_again(own)
    return job(run)


@contextmanager
def _same_signals() -> Generator[None]:
    """Keep what SIGTERM does: Ray would end the process at once."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


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
