"""Registration of your own encodings by name, for the rest of the process."""

import hashlib
import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from wordorder.encodings.build import options_of
from wordorder.encodings.catalog import CATALOG
from wordorder.encodings.pattern import known_spelling
from wordorder.encodings.places import Encoding

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The class and file of a registered encoding."""

    name: str
    """The name under which it is registered."""
    class_name: str
    file: str
    """Path of the file that defines the class; empty where there is none, as in an interactive session."""
    sha256: str
    """SHA-256 of the file when the class was registered; empty without a file."""

    def as_dict(self) -> dict[str, str]:
        """Return what saved models and results contain of it; of the file its name alone, for privacy."""
        return {"class": self.class_name, "file": Path(self.file).name, "sha256": self.sha256}


_SOURCES: dict[str, Source] = {}


def register_encoding(name: str, encoding: type[Encoding]) -> None:
    """Register a class by a name, which networks, configurations and recipes then accept like those of the catalogue.

    Only the form is checked; `wordorder.networks.check_encoding` tests what training, packing, padding, caching and
    saving rely on. A class of the same name from the same module replaces the one that was registered before, so that a
    cell of a notebook can be run again.

    Args:
        name: letters, digits, "-" and "_"; "+", ",", "@" and "*" are signs of patterns.
        encoding: not abstract, and every argument of its constructor that is not a size of the network has a default.

    Raises:
        ValueError: the name is taken or of another form, or the class is no encoding, is abstract or needs an argument
            that no network gives.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"name must be of letters, digits, '-' and '_', such as 'my-encoding', got {name!r}")
    if not (isinstance(encoding, type) and issubclass(encoding, Encoding)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"encoding must be a class of wordorder.encodings.Encoding (OnEmbeddings, OnScores, ..), got {encoding!r}"
        )
    missing = sorted(getattr(encoding, "__abstractmethods__", ()))
    if missing:
        raise ValueError(f"encoding {encoding.__name__} must define {', '.join(missing)}")
    needed = [option for option, default in options_of(encoding).items() if default is inspect.Parameter.empty]
    if needed:
        raise ValueError(
            f"encoding {encoding.__name__}: {', '.join(needed)} must have a default for networks to use it"
        )
    known = known_spelling(name)
    if known != name:
        raise ValueError(f"name {name!r} would be read as {known!r}, which is in the catalogue; choose another")
    there = CATALOG.get(name)
    same = there is not None and (there.__module__, there.__qualname__) == (encoding.__module__, encoding.__qualname__)
    if there is not None and not (name in _SOURCES and same):
        raise ValueError(f"name {name!r} is taken by {there.__module__}.{there.__name__}; choose another")
    file = getattr(sys.modules.get(encoding.__module__), "__file__", None)
    path, digest = "", ""
    if file and Path(file).is_file():
        path, digest = str(Path(file).absolute()), hashlib.sha256(Path(file).read_bytes()).hexdigest()
    CATALOG[name] = encoding
    _SOURCES[name] = Source(name=name, class_name=encoding.__qualname__, file=path, sha256=digest)


def registered_encodings() -> dict[str, Source]:
    """Return the sources of the encodings that this process has registered, by name."""
    return {name: source for name, source in _SOURCES.items() if name in CATALOG}
