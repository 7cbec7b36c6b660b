"""Show the progress of a run on stderr: a bar, a line now and then, or nothing; and keep other libraries quiet."""

import sys
import time
import warnings
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from math import fsum
from typing import Any

from wordorder.launch import process_count
from wordorder.streams import EVERY, printable

_AVERAGED = 50  # steps: the loss of one small batch says little
_REDRAWN = 0.25  # seconds between two states of the bar


class Progress:
    """The display of a run's progress. This one shows nothing."""

    def start(self, step: int, total: int) -> None:
        """Begin to show training, which starts or continues after `step` of `total` steps."""

    def update(self, step: int, loss: float, tokens: int) -> None:
        """Report a finished step; loss in nats, tokens since the start of the run."""

    def say(self, text: str) -> None:
        """Report an event that is worth a line, such as an evaluation."""

    def advise(self, text: str) -> None:
        """Show advice to the person who started the run."""

    def meanwhile(self, text: str) -> None:
        """Report long work between two steps; the text says how far it is, and need not stay."""

    def close(self) -> None:
        """End the display."""


class AdviceOnce(Progress):
    """Progress that shows each advice once for all runs that share it, and nothing else; for comparisons."""

    def __init__(self) -> None:
        self._texts = set[str]()

    def advise(self, text: str) -> None:
        if text not in self._texts:
            self._texts.add(text)
            print(printable(f"wordorder: {text}"), file=sys.stderr, flush=True)


class Shown(Progress):
    """Steps, loss, rate and time left on stderr: a bar on a terminal, elsewhere a line every ten seconds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._losses: deque[float] = deque(maxlen=_AVERAGED)
        self._total, self._next = 0, 0.0
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            # Redrawn by `update` alone: a drawing thread would take the interpreter's lock from training.
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn())
            console, text = Console(stderr=True), TextColumn("{task.fields[text]}")
            self._bar = Bar(*columns, text, console=console, auto_refresh=False, transient=True)
            self._task = self._bar.add_task(printable(name), total=None, text="")

    def start(self, step: int, total: int) -> None:
        self._total, self._first_step, self._since = total, step, time.monotonic()
        self._first_tokens: int | None = None
        if self._bar is None:
            self._next = self._since + EVERY
        else:
            self._bar.start()
            self._bar.update(self._task, total=total, completed=step, refresh=True)

    def update(self, step: int, loss: float, tokens: int) -> None:
        self._losses.append(loss)
        if self._is_due() or step == self._total:
            mean = fsum(self._losses) / len(self._losses)
            self._show(f"loss {mean:.4f}  {self._rate(step, tokens)}", step)

    def _rate(self, step: int, tokens: int) -> str:
        if self._first_tokens is None:
            self._first_tokens = tokens * self._first_step // max(step, 1)
        seconds = max(time.monotonic() - self._since, 1e-9)
        steps_a_second = (step - self._first_step) / seconds
        left = int((self._total - step) / steps_a_second) if steps_a_second > 0 else 0
        clock = f"{left // 3600}:{left % 3600 // 60:02d}:{left % 60:02d}"
        tokens_a_second = (tokens - self._first_tokens) / seconds
        return f"{steps_a_second:.1f} steps/s  {tokens_a_second:,.0f} tokens/s  {clock} left"

    def say(self, text: str) -> None:
        line = printable(f"{self._name}: {text}")
        if self._bar is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(line, highlight=False, markup=False)

    advise = say

    def meanwhile(self, text: str) -> None:
        if self._is_due():
            self._show(text)

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + (EVERY if self._bar is None else _REDRAWN)
        return True

    def _show(self, text: str, step: int | None = None) -> None:
        if self._bar is None:
            self.say(text if step is None else f"step {step}/{self._total}  {text}")
        else:
            self._bar.update(self._task, completed=step, text=text, refresh=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def quiet_libraries() -> Generator[None]:
    """Let transformers show errors only and no progress bars within the block, then restore its settings."""
    from transformers.utils import logging

    if process_count() > 1:
        # Nothing changes a model's logits in place, and its loss is no view.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    library: Any = logging
    verbosity, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(verbosity)
        if bars:
            library.enable_progress_bar()
