"""Set the number of CPU threads of a run, and detect threads that wait for processors that others use."""

import time
from collections.abc import Generator
from contextlib import contextmanager

import torch

_LOOKED_AT = 3.0  # seconds of training
_CROWDED = 0.75


@contextmanager
def cpu_threads(count: int | None) -> Generator[None]:
    """Let torch compute with this many CPU threads within the block.

    Args:
        count: at least 1; None leaves torch's own number, which is that of the cores or OMP_NUM_THREADS.
    """
    if count is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Crowding:
    """Detects that the threads of a training share their processors with other programs.

    The threads of one operation wait for its slowest; where another process holds a core, every operation waits for the
    system to give that core back, and two threads can be forty times slower than one. What shows it is the thread that
    trains: alone on its core it has nearly all of the time that passes. The time of the whole process would say less,
    because of many threads a small model keeps some idle on a machine that is free, too.
    """

    def __init__(self) -> None:
        self._wall = self._busy = 0.0
        self._since: tuple[float, float] | None = None
        self._warm = self._said = False

    def resume(self) -> None:
        """Start or continue counting, in the thread that trains."""
        if not self._said and self._since is None:
            self._since = time.perf_counter(), time.thread_time()

    def pause(self) -> None:
        """Stop counting until `resume`."""
        if self._since is not None:
            wall, busy = self._since
            self._wall += time.perf_counter() - wall
            self._busy += time.thread_time() - busy
            self._since = None

    def advice(self) -> str | None:
        """Return advice once, after the first seconds of training, else None; called after every step."""
        if self._said or self._since is None:
            return None
        self.pause()
        if not self._warm:  # the first step loads libraries and asks for memory
            self._warm, self._wall, self._busy = True, 0.0, 0.0
        self._said = self._wall >= _LOOKED_AT
        self.resume()
        threads = torch.get_num_threads()
        if not self._said or threads == 1 or self._busy >= _CROWDED * self._wall:
            return None
        return (
            f"the processors are shared: {threads} threads wait for each other, and training had only "
            f"{self._busy / self._wall:.0%} of the time of its core; one thread is probably faster: "
            "--set training.threads=1, or, to compare, --set compare.workers=2 (each with one thread)"
        )
