"""Put the public names of a package that no page of the reference names itself into its page, as the site is built.

A line of a page

    <!-- public: PACKAGE -->

becomes mkdocstrings' lines for them. `site_hooks.py` calls `filled`.
"""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).resolve().parent / "reference"
MARKER = re.compile(r"^<!-- public: ([a-z_.]+) -->$", flags=re.MULTILINE)


def exported(package: str) -> dict[str, Any]:
    """Return the public classes and functions of a package by their names: those that it defines or exports."""
    module = importlib.import_module(package)
    names = getattr(module, "EXPORTS", None) or getattr(module, "__all__", None)
    if names is None:
        names = _names_in(package)
    found = {name: getattr(module, name) for name in names if not name.startswith("_")}
    return {name: value for name, value in found.items() if inspect.isclass(value) or inspect.isroutine(value)}


def _names_in(package: str) -> list[str]:
    """Return what a module defines, and what it exports by `import x as x`, for type checkers alone too."""
    tree = ast.parse(Path(str(importlib.import_module(package).__file__)).read_text(encoding="utf-8"))
    checked = [node for part in tree.body if isinstance(part, ast.If) for node in part.body]
    imports = [node for node in (*tree.body, *checked) if isinstance(node, ast.ImportFrom)]
    names = [alias.asname for node in imports for alias in node.names if alias.asname]
    for node in imports:
        if node.names[0].name == "*":
            names += _names_in(str(node.module))
    return names + [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]


def the_rest(package: str) -> str:
    """Return mkdocstrings' lines for what a package exports and no page of the reference names itself."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md"))]
    named = [name.rpartition(".") for name in re.findall(r"^::: (\S+)$", "\n".join(pages), flags=re.MULTILINE)]
    there = {id(getattr(importlib.import_module(module), name)) for module, _, name in named}
    return "\n\n".join(
        f"::: {package}.{name}\n    options:\n      members: false"
        for name, value in exported(package).items()
        if id(value) not in there
    )


def filled(text: str) -> str:
    """Return the Markdown of a page with what its markers stand for."""
    return MARKER.sub(lambda found: the_rest(found[1]), text)
