"""Make standard input, output and error safe to use, however a shell, a pipe or a full disk left them.

A stderr that nobody reads must not stop a training, and a terminal without UTF-8 must not either.
"""

import codecs
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from wordorder.errors import BadInput, RunFailed
from wordorder.launch import is_main

_ESCAPE = "wordorder-escape"
# All but line feed and tab: escape sequences move a terminal's cursor, and others turn the direction of what follows.
_CONTROL = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]")


def prepare_streams() -> None:
    """Make the three streams safe to use, in the process that calls it.

    A closed one becomes the null device. Letters that an encoding does not have are written as JSON escapes. What
    cannot be written to stderr is dropped; what cannot be written to stdout raises, once: `BrokenPipeError` where its
    reader went away, `RunFailed` for anything else, such as a full disk.
    """
    codecs.register_error(_ESCAPE, _escaped)
    for number, name in enumerate(("stdin", "stdout", "stderr")):  # in this order: the lowest free number is given out
        if getattr(sys, name) is None:
            os.set_inheritable(opened := os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(opened, "r" if number == 0 else "w", encoding="utf-8", closefd=False))
    given = sys.stdin
    if isinstance(given, io.TextIOWrapper):
        given.reconfigure(errors="strict")  # some locales would let bytes through that are no letters
    sys.stdout = _guarded(sys.stdout, dropping=False)
    sys.stderr = _guarded(sys.stderr, dropping=True)


def drop_lost_output() -> None:
    """Drop from here on what cannot be written to stdout too: for commands whose result is in files."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Output):
        raw.dropping = True


def printable(text: str) -> str:
    """Write control characters as JSON escapes: names of arms, folders and labels may be a stranger's."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def lines_of_stdin() -> Iterator[str]:
    """Read the lines of stdin as a text file is read: without a byte order mark, and with line feeds alone."""
    try:
        for number, line in enumerate(sys.stdin):
            line = line if number else line.removeprefix("\ufeff")
            yield f"{line[:-2]}\n" if line.endswith("\r\n") else line
    except UnicodeDecodeError as error:
        raise BadInput(f"stdin is not {error.encoding} text: {error.reason}; send text") from error
    except OSError as error:
        raise BadInput(f"stdin cannot be read: {error.strerror}; send text, or give it as an argument") from error


class _Output(io.FileIO):
    def __init__(self, number: int, *, dropping: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self.dropping = dropping

    def write(self, data: Any, /) -> Any:
        try:
            written: int | None = super().write(data)
            return memoryview(data).nbytes if written is None and self.dropping else written  # None: it would block
        except OSError as error:
            if self.dropping:
                return memoryview(data).nbytes
            self.dropping = True  # or the interpreter would complain of the rest while it ends
            if isinstance(error, BrokenPipeError):
                raise
            raise RunFailed(f"standard output cannot be written: {error.strerror}; send it elsewhere") from error


def _guarded(stream: Any, *, dropping: bool) -> Any:
    try:
        number = stream.fileno()
    except (OSError, AttributeError):  # in memory, as in tests
        return stream
    if os.name == "nt" and stream.isatty():  # a console of Windows takes letters, not bytes
        return stream
    raw = _Output(number, dropping=dropping)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=stream.encoding, errors=_ESCAPE, line_buffering=stream.line_buffering
    )


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


EVERY = 10.0
"""Seconds between two lines of progress where stderr is no terminal."""


@contextmanager
def progress_bar(title: str) -> Generator[Callable[[int, int | None], None]]:
    """Show on stderr how far a long work is, from the first call of (done, total) on, None for an unknown total.

    On a terminal it is a bar, elsewhere, as in a log, a line every `EVERY` seconds; of several processes the first one
    shows it.
    """
    from rich.console import Console
    from rich.progress import Progress

    shown, lines = is_main(), not sys.stderr.isatty()
    bar = Progress(console=Console(stderr=True), transient=True, disable=lines or not shown)
    task, due = bar.add_task(title, total=None), time.monotonic() + EVERY

    def show(done: int, total: int | None) -> None:
        nonlocal due
        bar.start()
        bar.update(task, completed=done, total=total)
        if shown and lines and time.monotonic() >= due:
            due = time.monotonic() + EVERY
            of = f" of {total:,} ({done / max(1, total):.0%})" if total is not None else ""
            print(f"{title}: {done:,}{of}", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        bar.stop()
