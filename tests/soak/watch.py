"""Watching a child from its parent: what its run is at, and how many calls it has made."""

import mmap
import struct
import time
from typing import Any

PHASES = ("start", "setup", "step", "evaluation", "save", "rotation", "end")


class Watch:
    """What a child is at, in memory that its parent shares: the phase, and how many calls it has made."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 24)

    def enter(self, phase: str) -> str:
        """Say what begins, and return what was before."""
        before = self.phase
        if before == "setup" and phase == "step":
            struct.pack_into("d", self.memory, 16, time.time())
        struct.pack_into("q", self.memory, 0, PHASES.index(phase))
        return before

    @property
    def phase(self) -> str:
        """What the child is, or was, at."""
        return PHASES[struct.unpack_from("q", self.memory, 0)[0]]

    @property
    def first_step(self) -> float:
        """When the child began to train, in seconds since 1970."""
        return struct.unpack_from("d", self.memory, 16)[0]

    def tell(self, calls: int) -> None:
        """Take note of the number of calls so far."""
        struct.pack_into("q", self.memory, 8, calls)

    @property
    def calls(self) -> int:
        """How many calls the child has made."""
        return struct.unpack_from("q", self.memory, 8)[0]

    def install(self) -> None:
        """Follow the run of this process."""
        from wordorder.training.loop import saving
        from wordorder.training.loop.evaluation import Evaluation
        from wordorder.training.loop.loop import Loop
        from wordorder.training.runs import fit

        self.enter("setup")
        for place, name, phase in (
            (Loop, "micro_step", "step"),
            (Evaluation, "scores", "evaluation"),
            (saving.Saving, "save", "save"),
            (saving, "rotate", "rotation"),
            (fit, "_finish", "end"),
        ):
            setattr(place, name, self._followed(getattr(place, name), phase))

    def _followed(self, function: Any, phase: str) -> Any:
        def followed(*args: Any, **kwargs: Any) -> Any:
            before = self.enter(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self.enter("step" if before == "step" or phase == "step" else before)

        return followed
