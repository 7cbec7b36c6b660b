"""Names of a package that load on first use (PEP 562)."""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module


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
