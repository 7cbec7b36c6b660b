"""Classes by name, and names that load on first use (PEP 562)."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

Kind = TypeVar("Kind")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class Registered(NamedTuple):
    """A class that was registered, with the path and the SHA-256 of its file then; "" in an interactive session."""

    name: str
    class_name: str
    file: str
    sha256: str

    @classmethod
    def of(cls, name: str, kind: type) -> "Registered":
        """Return the record of a class that is registered now."""
        import hashlib

        module = sys.modules.get(kind.__module__)
        file = getattr(module, "__file__", None)
        if not file or not Path(file).is_file():
            return cls(name=name, class_name=kind.__qualname__, file="", sha256="")
        digest = getattr(module, "__sha256__", None) or hashlib.sha256(Path(file).read_bytes()).hexdigest()
        return cls(name=name, class_name=kind.__qualname__, file=str(Path(file).absolute()), sha256=digest)

    def as_dict(self) -> dict[str, str]:
        """Return what saved models and results contain of it; of the file its name alone, for privacy."""
        return {"class": self.class_name, "file": Path(self.file).name, "sha256": self.sha256}


class Registry(MutableMapping[str, type[Kind]]):
    """Classes by name, each imported when it is first read.

    A name that is looked up may end in a label, "rope:near", by which patterns tell two of one class apart.

    Args:
        title: of one of them, for errors: "encoding".
        classes: "module:Class" by name, for those of the package.
    """

    def __init__(self, title: str, classes: Mapping[str, str]) -> None:
        self.title = title
        self.modules = {path.partition(":")[2]: path.partition(":")[0] for path in classes.values()}
        """The module of each class of the package."""
        self._classes: dict[str, str | type[Kind]] = dict(classes)
        self._registered: dict[str, Registered] = {}

    def __getitem__(self, name: str) -> type[Kind]:
        name = without_label(name)
        entry = self._classes[name]
        if not isinstance(entry, str):
            return entry
        module, _, class_name = entry.partition(":")
        kind: type[Kind] = getattr(import_module(module), class_name)
        self._classes[name] = kind
        return kind

    def __setitem__(self, name: str, kind: type[Kind]) -> None:
        self._classes[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._classes[name]
        self._registered.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and without_label(name) in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title}: {', '.join(self)})"

    def __len__(self) -> int:
        return len(self._classes)

    @property
    def registered(self) -> dict[str, Registered]:
        """Those that this process has registered, by name."""
        return dict(self._registered)

    def register(self, name: str, kind: type[Kind], *, base: type[Kind], sizes: tuple[str, ...]) -> None:
        """Enter a class under a name; one of the same name from the same module replaces what was there.

        Args:
            base: what it must derive from.
            sizes: arguments of its constructor that need no default, since a network gives them.

        Raises:
            ValueError: the name is taken or of another form, or the class is none of these, is abstract, or needs an
                argument that no network gives.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"name must be of letters, digits, '-' and '_', such as 'my-{self.title}', got {name!r}")
        if not (isinstance(kind, type) and issubclass(kind, base)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{self.title} must be a class of {base.__module__}.{base.__name__}, got {kind!r}")
        missing = sorted(getattr(kind, "__abstractmethods__", ()))
        if missing:
            raise ValueError(f"{self.title} {kind.__name__} must define {', '.join(missing)}")
        from inspect import Parameter

        needed = [option for option, default in options_of(kind, sizes).items() if default is Parameter.empty]
        if needed:
            raise ValueError(
                f"{self.title} {kind.__name__}: {', '.join(needed)} must have a default for networks to use it"
            )
        if name in self and not (name in self._registered and _same(self[name], kind)):
            other = self[name]
            raise ValueError(f"name {name!r} is taken by {other.__module__}.{other.__name__}; choose another")
        self[name] = kind
        self._registered[name] = Registered.of(name, kind)


def without_label(name: str) -> str:
    """Return the name of a class, of that name with a label or without."""
    return name.partition(":")[0]


def options_of(kind: type, sizes: tuple[str, ...]) -> dict[str, object]:
    """Return the arguments of a class's constructor, but for ``sizes``, with their defaults."""
    import inspect

    anything = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # of nn.Module's own constructor
    parameters = inspect.signature(kind).parameters.items()
    return {name: p.default for name, p in parameters if name not in sizes and p.kind not in anything}


def _same(one: type, other: type) -> bool:
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def lazy_names(
    package: str, modules: Mapping[str, str], folders: Collection[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package: each name is imported when it is first asked for.

    Type checkers and editors read the same names from imports under ``TYPE_CHECKING``.

    Args:
        package: its ``__name__``.
        modules: the module that defines each name.
        folders: submodules that are attributes of the package without an import line of their own.
    """

    def __getattr__(name: str) -> object:
        if name == "__all__":  # of `from package import *`
            return __dir__()
        if name in modules:
            return getattr(import_module(modules[name]), name)
        if name in folders:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it has: {', '.join(__dir__())}")

    def __dir__() -> list[str]:
        names = {name for name in vars(import_module(package)) if not name.startswith("_")}
        return sorted({*modules, *folders, *names} - {"TYPE_CHECKING", "lazy_names"})

    return __getattr__, __dir__
