"""Handle signals that ask a run to stop: at the end of a step while it trains, and at once before and after."""

import signal
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from wordorder.errors import Stopped
from wordorder.launch import is_watched_over

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
SIGNALS: tuple[signal.Signals, ...] = tuple(signal.Signals[name] for name in _NAMES if hasattr(signal, name))
"""Signals that ask a run to save and stop: Ctrl-C, a service manager's or a cluster's end, a terminal that closes, and
a cluster's early warnings."""


class Signalled(KeyboardInterrupt):
    """Raised by a signal's handler to stop at once; `handling` makes `Stopped` of it.

    It is no `Exception`, which a library that is being imported would take for a fault of the import.
    """


class Interruption:
    """Within its `with`, the first of `SIGNALS` only sets `requested`; the same one again has its default effect.

    So a second Ctrl-C raises KeyboardInterrupt, but the SIGTERM that a cluster sends some time after its SIGUSR1 does
    not break off the save that SIGUSR1 asked for. Under a launcher, and in a comparison's workers, a second signal
    changes nothing: it is the first one, passed on. Nor does a second SIGXCPU, which the system sends every second, or
    SIGHUP, which comes twice when a terminal closes. Ignored signals stay ignored, as SIGHUP is under nohup.
    """

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        """The signal that asked to stop, if one did."""
        self._handling = handling(SIGNALS, self._request)

    def __enter__(self) -> Self:
        self._handling.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._handling.__exit__(*error)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = self.requested or signal.Signals(number)
        # a signal to all processes of a terminal or a job arrives a second time, passed on
        if is_watched_over() or signal.Signals(number).name in ("SIGHUP", "SIGXCPU"):
            return
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@contextmanager
def stopping_at_once() -> Generator[None]:
    """Let signals raise `Stopped` before and after training, where nothing has to be saved first.

    An `Interruption` within takes over while it lasts. SIGINT keeps its meaning: KeyboardInterrupt.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        at = f"stopped by {signal.Signals(number).name} while nothing was being trained"
        raise Signalled(f"{at}; every checkpoint is kept; --resume goes on")

    with handling([number for number in SIGNALS if number != signal.SIGINT], stop):
        yield


@contextmanager
def handling(numbers: Iterable[signal.Signals], handler: Any) -> Generator[None]:
    """Handle signals within the block, where handlers can be set; those that are ignored stay so.

    Raises:
        Stopped: the handler raised `Signalled`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    except Signalled as error:
        raise Stopped(str(error)) from None
    finally:
        for number, former in before.items():
            signal.signal(number, former if former is not None else signal.SIG_DFL)


@contextmanager
def held_back() -> Generator[None]:
    """Hold signals back within the block, where handlers can be set: the first that came acts at its end."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    try:
        with handling(SIGNALS, note):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])
