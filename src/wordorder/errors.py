"""The errors that users meet, each with one meaning for the command line's exit code."""

from collections.abc import Iterable
from pathlib import Path


class WordOrderError(Exception):
    """Base of every error that wordorder raises on purpose."""


class BadInput(WordOrderError, ValueError):
    """The recipe, the data or an argument is wrong; nothing was started. Exit code 2.

    Args:
        faults: one line per fault, each naming the argument, the value and the remedy.
    """

    def __init__(self, faults: str | Iterable[str]) -> None:
        given = (faults,) if isinstance(faults, str) else tuple(faults)
        # a fault is one line, also where it quotes a library's message
        self.faults: tuple[str, ...] = tuple(" ".join(fault.splitlines()) for fault in given)
        super().__init__("\n".join(self.faults))


class UnfairComparison(BadInput):
    """Arms of a comparison were not, or cannot be, made equal in what the recipe asks for. Exit code 2."""


class RunFailed(WordOrderError, RuntimeError):
    """A run failed while it was running (NaN loss, full disk); what was saved before is intact. Exit code 1."""


class Stopped(WordOrderError):
    """A signal asked the run to stop, and its state was saved first. Exit code 3."""


class MissingExtra(WordOrderError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: the distribution that could not be imported.
        extra: the extra of wordorder that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where wordorder itself came: a folder, a repository, an index."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    source = Path(__file__).resolve().parents[2]
    if (source / "pyproject.toml").is_file():  # the package lies in its source folder
        return f"pip install -e '{source}[{extra}]'"
    address = _installed_from()
    if not address:
        return f"pip install 'wordorder[{extra}]'"
    if not address.startswith("file:"):
        return f"pip install 'wordorder[{extra}] @ {address}'"
    path = url2pathname(urlsplit(address).path)  # a folder or a wheel; pip takes extras behind either
    here = Path(path).exists()
    return f"pip install '{path}[{extra}]'" if here else f"pip install '.[{extra}]' in the source folder of wordorder"


def _installed_from() -> str:
    """Return the address that pip installed from; empty where it was an index.

    PyPA, "Recording the Direct URL Origin", https://packaging.python.org/en/latest/specifications/direct-url/
    """
    import importlib.metadata
    import json

    try:
        written = importlib.metadata.distribution("wordorder").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return ""
    if not written:
        return ""
    found = json.loads(written)
    repository = found.get("vcs_info")
    return f"{repository['vcs']}+{found['url']}" if repository else str(found["url"])
