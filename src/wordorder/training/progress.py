"""How a run shows itself on stderr: a bar on a terminal, a line now and then elsewhere, or nothing."""

import sys
import time
from typing import Any, Protocol

_BAR_EVERY = 0.25
_LINE_EVERY = 10.0


class Progress(Protocol):
    """What training tells whoever watches."""

    def start(self, step: int, total: int) -> None:
        """Training starts, or goes on, after `step` of `total` steps."""
        ...

    def update(self, step: int, loss: float, tokens: int) -> None:
        """A step is done; loss in nats, tokens since the start of the run."""
        ...

    def say(self, text: str) -> None:
        """Something worth a line happened, such as an evaluation."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


class Silent:
    """Shows nothing."""

    def start(self, step: int, total: int) -> None: ...
    def update(self, step: int, loss: float, tokens: int) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


class Lines:
    """A line every ten seconds, for logs and pipes.

    Args:
        name: what the run is called.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._total = 0
        self._rate = Rate()
        self._next = 0.0

    def start(self, step: int, total: int) -> None:
        self._total = total
        self._rate.start(step)
        self._next = time.monotonic() + _LINE_EVERY

    def update(self, step: int, loss: float, tokens: int) -> None:
        if time.monotonic() >= self._next or step == self._total:
            self._next = time.monotonic() + _LINE_EVERY
            self.say(f"step {step}/{self._total}  loss {loss:.4f}  {self._rate.text(step, tokens, self._total)}")

    def say(self, text: str) -> None:
        print(f"{self._name}: {text}", file=sys.stderr, flush=True)

    def close(self) -> None: ...


class Bar:
    """A bar with step, loss, rate and time left.

    Args:
        name: what the run is called.
    """

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        # Redrawn by `update` alone: a drawing thread would take the interpreter's lock from training.
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task(name, total=None, text="")
        self._name = name
        self._total = 0
        self._rate = Rate()
        self._next = 0.0

    def start(self, step: int, total: int) -> None:
        self._total = total
        self._rate.start(step)
        self._bar.start()
        self._bar.update(self._task, total=total, completed=step, refresh=True)

    def update(self, step: int, loss: float, tokens: int) -> None:
        now = time.monotonic()
        if now >= self._next or step == self._total:
            self._next = now + _BAR_EVERY
            text = f"loss {loss:.4f}  {self._rate.text(step, tokens, self._total)}"
            self._bar.update(self._task, completed=step, text=text, refresh=True)

    def say(self, text: str) -> None:
        self._bar.console.print(f"{self._name}: {text}", highlight=False, markup=False)

    def close(self) -> None:
        self._bar.stop()


class Rate:
    """Steps and tokens a second since the run was started or resumed, and the time left at that rate."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._first_step = 0
        self._first_tokens: int | None = None

    def start(self, step: int) -> None:
        """Count from here.

        Args:
            step: steps done before.
        """
        self._since, self._first_step, self._first_tokens = time.monotonic(), step, None

    def text(self, step: int, tokens: int, total: int) -> str:
        """Rate and time left, such as `12.3 steps/s  25,190 tokens/s  0:01:20 left`.

        Args:
            step: steps done.
            tokens: tokens seen since the start of the run.
            total: steps of the whole run.
        """
        if self._first_tokens is None:
            self._first_tokens = tokens * self._first_step // max(step, 1)
        seconds = max(time.monotonic() - self._since, 1e-9)
        steps_a_second = (step - self._first_step) / seconds
        left = int((total - step) / steps_a_second) if steps_a_second > 0 else 0
        clock = f"{left // 3600}:{left % 3600 // 60:02d}:{left % 60:02d}"
        tokens_a_second = (tokens - self._first_tokens) / seconds
        return f"{steps_a_second:.1f} steps/s  {tokens_a_second:,.0f} tokens/s  {clock} left"


def choose_progress(name: str, *, shown: bool) -> Progress:
    """A bar on a terminal, lines elsewhere, nothing when not shown.

    Args:
        name: what the run is called.
        shown: whether anything is to be shown.
    """
    if not shown:
        return Silent()
    stream: Any = sys.stderr
    return Bar(name) if stream.isatty() else Lines(name)
