"""Show the progress of a comparison: one live display in a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from wordorder.comparison.engines.local import Outcome
from wordorder.comparison.results_file import MatchedBudget
from wordorder.comparison.runs import Run
from wordorder.streams import printable
from wordorder.training.runs.folder import read_curve


class Display:
    """A display of finished runs out of all, running ones with their steps, and the time left.

    The steps of a run are read from its curve.jsonl, so that trainings in other processes need no channel to here.
    """

    def __init__(self, runs: Iterable[Run], *, show: bool = True, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.total, self.left, self.done_before = 0, dict[Path, Run](), 0.0
        self.current: dict[Path, Run] = {}
        self.started = time.monotonic()
        self.show = show
        self.expect(runs)
        live = show and self.console.is_terminal
        self.live = Live(get_renderable=self.render, console=self.console, refresh_per_second=2) if live else None

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        elif self.show and self.total > len(self.left):
            print_line(f"{self.total - len(self.left)} of {self.total} runs were finished before", self.console)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def expect(self, runs: Iterable[Run]) -> None:
        """Take more runs into the count."""
        every = {run.folder: run for run in runs}
        self.total += len(every)
        self.left |= {folder: run for folder, run in every.items() if not run.finished()}
        # runs done before this session say nothing about this session's speed
        self.done_before += len(every) - sum(folder in self.left for folder in every)
        self.done_before += sum(fraction(run) for folder, run in every.items() if folder in self.left)

    def start(self, run: Run) -> None:
        """Show that a run has started."""
        self.current[run.folder] = run
        if self.live is None and self.show:
            number = self.total - len(self.left) + len(self.current)
            print_line(f"[{number}/{self.total}] {run.label} ...", self.console)

    def finish(self, run: Run, outcome: Outcome, result: str) -> None:
        """Show how a run ended; ``result`` is its headline number in words."""
        self.current.pop(run.folder, None)
        self.left.pop(run.folder, None)
        if not self.show:
            return
        text = result if outcome.status == "finished" else f"FAILED: {outcome.reason}"
        print_line(f"{run.label}: {text} ({duration(outcome.seconds)}{self._time_left()})", self.console)

    def render(self) -> Table:
        """Return the display as a table."""
        table = Table.grid(padding=(0, 1))
        done = self._done()
        waiting = len(self.left) - len(self.current)
        head = f"{self.total - len(self.left)} of {self.total} runs, {len(self.current)} running, {waiting} waiting"
        head += self._time_left()
        table.add_row(Text("comparison", style="bold"), ProgressBar(self.total, done, width=30), head)
        for run in list(self.current.values()):
            part = fraction(run)
            table.add_row(Text(printable(run.at_work())), ProgressBar(1, part, width=30), f"{part:.0%}")
        return table

    def _done(self) -> float:
        return self.total - len(self.left) + sum(fraction(run) for run in list(self.left.values()))

    def _time_left(self) -> str:
        done, elapsed = self._done(), time.monotonic() - self.started
        here = done - self.done_before
        if here < 0.1 or done >= self.total:
            return ""
        return f"; about {duration(elapsed / here * (self.total - done))} left"


def print_line(text: str, console: Console) -> None:
    """Print a line as it stands: an arm may be called [bold]."""
    console.print(escape(printable(text)), highlight=False, soft_wrap=True)


def fraction(run: Run) -> float:
    """Return the share of a run's steps that is done, 0 to 1; 0 if its number of steps is not known beforehand."""
    steps = run.recipe.training.get("max_steps") or 0
    curve = read_curve(run.folder) if steps > 0 else []
    return min(1.0, float(curve[-1].get("step", 0)) / steps) if curve else 0.0


def duration(seconds: float) -> str:
    """Return a length of time in words: ``42 s``, ``5 min``, ``2 h 10 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def print_changes(budget: MatchedBudget, console: Console) -> None:
    """Print the changes that make the budgets of all arms equal."""
    if budget.sentence:
        print_line(budget.sentence, console)
    for arm, entry in budget.arms.items():
        changed = [f"{name} {before} -> {now}" for name, (before, now) in entry.changed.items()]
        if changed:
            print_line(f"  {arm}: {', '.join(changed)}", console)
