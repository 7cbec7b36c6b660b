"""The console script, which says in one line what to install where the command line's own dependencies are missing."""

import signal
import sys
from importlib import import_module
from types import FrameType


def main() -> None:
    """Run the command line; the process ends with the exit code that `faults.py` lists."""
    # Everything else is imported within: Ctrl-C while Python still reads files must not print a traceback.
    try:
        if {"train", "compare"} & set(sys.argv[1:]):
            _stop_at_once()
        _run()
    except KeyboardInterrupt:
        print("wordorder: interrupted", file=sys.stderr)
        sys.exit(130)


def _run() -> None:
    from wordorder.errors import install_command
    from wordorder.streams import prepare_streams

    prepare_streams()
    for package in ("typer", "rich"):
        try:
            import_module(package)
        except ImportError:
            # typer is what parses and reports, so this one fault is reported by hand.
            print(f"wordorder: {package} is not installed; run: {install_command('train')}", file=sys.stderr)
            sys.exit(2)
    from wordorder.cli.app import app

    app()


def _stop_at_once() -> None:
    """Make signals that end a run exit with its code while libraries are still being imported; ignored ones stay so."""

    def stop(number: int, frame: FrameType | None) -> None:
        print(f"wordorder: stopped by {signal.Signals(number).name} before anything was started", file=sys.stderr)
        sys.exit(3)

    for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"):  # SIGINT is a KeyboardInterrupt
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)
