"""How a run shows itself on stderr: a bar on a terminal, a line now and then elsewhere, or nothing."""

import sys
import time
from collections import deque
from math import fsum
from typing import Any, Protocol

from wordorder.streams import printable

_BAR_EVERY = 0.25
_LINE_EVERY = 10.0
_AVERAGED = 50  # steps: the loss of one small batch says little


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

    def advise(self, text: str) -> None:
        """There is something that whoever started the run could do better."""
        ...

    def meanwhile(self, text: str) -> None:
        """Something that takes long goes on between two steps; the text says how far it is, and need not stay."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


class Silent:
    """Shows nothing."""

    def start(self, step: int, total: int) -> None: ...
    def update(self, step: int, loss: float, tokens: int) -> None: ...
    def say(self, text: str) -> None: ...
    def advise(self, text: str) -> None: ...
    def meanwhile(self, text: str) -> None: ...
    def close(self) -> None: ...


class AdviceOnce(Silent):
    """Shows the first advice of all runs that it is given to, and nothing else; for the runs of a comparison."""

    def __init__(self) -> None:
        self._given = False

    def advise(self, text: str) -> None:
        if not self._given:
            self._given = True
            print(printable(f"wordorder: {text}"), file=sys.stderr, flush=True)


class Lines:
    """A line every ten seconds, for logs and pipes; its loss is the mean over the last steps, at most 50.

    Args:
        name: what the run is called.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._total = 0
        self._rate = Rate()
        self._recent = RecentLoss()
        self._next = 0.0

    def start(self, step: int, total: int) -> None:
        self._total = total
        self._rate.start(step)
        self._next = time.monotonic() + _LINE_EVERY

    def update(self, step: int, loss: float, tokens: int) -> None:
        if not self._recent.add(step, loss):
            return
        if time.monotonic() >= self._next or step == self._total:
            self._next = time.monotonic() + _LINE_EVERY
            self.say(
                f"step {step}/{self._total}  loss {self._recent.mean:.4f}  {self._rate.text(step, tokens, self._total)}"
            )

    def say(self, text: str) -> None:
        print(printable(f"{self._name}: {text}"), file=sys.stderr, flush=True)

    def advise(self, text: str) -> None:
        self.say(text)

    def meanwhile(self, text: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_EVERY
            self.say(text)

    def close(self) -> None: ...


class Bar:
    """A bar with step, loss (the mean over the last steps, at most 50), rate and time left.

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
        self._task = self._bar.add_task(printable(name), total=None, text="")
        self._name = name
        self._total = 0
        self._rate = Rate()
        self._recent = RecentLoss()
        self._next = 0.0

    def start(self, step: int, total: int) -> None:
        self._total = total
        self._rate.start(step)
        self._bar.start()
        self._bar.update(self._task, total=total, completed=step, refresh=True)

    def update(self, step: int, loss: float, tokens: int) -> None:
        now = time.monotonic()
        if self._recent.add(step, loss) and (now >= self._next or step == self._total):
            self._next = now + _BAR_EVERY
            text = f"loss {self._recent.mean:.4f}  {self._rate.text(step, tokens, self._total)}"
            self._bar.update(self._task, completed=step, text=text, refresh=True)

    def say(self, text: str) -> None:
        self._bar.console.print(printable(f"{self._name}: {text}"), highlight=False, markup=False)

    def advise(self, text: str) -> None:
        self.say(text)

    def meanwhile(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _BAR_EVERY
            self._bar.update(self._task, text=text, refresh=True)

    def close(self) -> None:
        self._bar.stop()


class RecentLoss:
    """The mean loss of the last steps."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=_AVERAGED)
        self._step = -1

    def add(self, step: int, loss: float) -> bool:
        """Take a step's loss in; False for a step that was told already, as the last one of an epoch is twice.

        Args:
            step: steps done.
            loss: of this step, in nats.
        """
        if step == self._step:
            return False
        self._step = step
        self._losses.append(loss)
        return True

    @property
    def mean(self) -> float:
        """The mean of what was taken in."""
        return fsum(self._losses) / len(self._losses)


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
