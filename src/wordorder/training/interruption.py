"""Ctrl-C and SIGTERM as a request that training answers at the end of a step."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interruption:
    """Within its `with`, the first SIGINT or SIGTERM only sets `requested`; a second one acts as it always does.

    Outside the main thread, where Python lets no handler be set, signals keep their meaning.
    """

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        """The signal that asked to stop, if one did."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before.clear()
