"""The errors that users meet, each with one meaning for the command line's exit code."""

from collections.abc import Iterable


class WordOrderError(Exception):
    """Base of every error that wordorder raises on purpose."""


class BadInput(WordOrderError, ValueError):
    """The recipe, the data or an argument is wrong; nothing was started. Exit code 2.

    Args:
        faults: one line per fault, each naming the argument, the value and the remedy.
    """

    def __init__(self, faults: str | Iterable[str]) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))


class RunFailed(WordOrderError, RuntimeError):
    """A run broke while it worked (NaN loss, full disk); what was saved before is intact. Exit code 1."""


class Stopped(WordOrderError):
    """A signal asked the run to stop, and its state was saved first. Exit code 3."""


class MissingExtra(WordOrderError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: the distribution that could not be imported.
        extra: the extra of wordorder that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'wordorder[{extra}]'")
