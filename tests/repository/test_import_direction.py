"""A folder of src/wordorder imports lower floors only; read from the AST, so imports inside functions count too."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "wordorder"

FLOORS = {
    "ops": 0,
    "encodings": 1,
    "attention": 2,
    "memory": 3,
    "networks": 4,
    "own_classes": 4.5,
    "models": 5,
    "data": 5,
    "tasks": 6,
    "training": 8,
    "inspection": 8,
    "cost": 8,
    "inference": 9,
    "papers": 10,
    "comparison": 11,
    "cli": 12,
}
"""Floor of a folder."""

EVERYWHERE = {"errors", "files", "hints", "launch", "registry", "section", "streams", "__version__"}
"""Names of the package that stand on no floor and that every folder may import."""

ON_DEMAND = {("models/factory.py", "papers")}
"""The one import that goes up: what a recipe or a saved model names of papers/ is loaded then."""

TOP = {"__init__", "__main__"}
"""Files of the package itself: they lead to every floor, so no folder may import names through them."""


def imports_of(file: Path, package: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name below wordorder) of every import of the package, relative and lazy ones included."""
    here = ("wordorder", *file.relative_to(package).with_suffix("").parts)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # `from wordorder import x` and `from .. import x` name the folder, or the lazy export, only in the alias.
            targets = [f"{module}.{alias.name}" for alias in node.names] if module == "wordorder" else [module]
        elif isinstance(node, ast.Call) and called_name(node) in ("import_module", "__import__"):
            targets = [str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)]
        else:
            continue
        for target in targets:
            if target == "wordorder" or target.startswith("wordorder."):
                yield node.lineno, target.removeprefix("wordorder").removeprefix(".")


def called_name(call: ast.Call) -> str:
    """Name the function that a call calls, without the object before the dot."""
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "")


def violations(package: Path) -> list[str]:
    """Describe every import that does not go down."""
    found: list[str] = []
    for file in sorted(package.rglob("*.py")):
        folder = file.relative_to(package).parts[0].removesuffix(".py")
        if folder in TOP or folder in EVERYWHERE:
            continue
        for line, name in imports_of(file, package):
            target = name.split(".")[0]
            where = f"{file.relative_to(package)}:{line}"
            if target in EVERYWHERE:
                continue
            if folder not in FLOORS:
                found.append(f"{where}: the folder {folder} has no floor in this test")
            elif target not in FLOORS:
                found.append(f"{where}: imports wordorder.{name or '__init__'}, which stands on no floor")
            else:
                here, there = FLOORS[folder], FLOORS[target]
                if (str(file.relative_to(package)), name) in ON_DEMAND:
                    continue
                if there > here or (there == here and target != folder):
                    found.append(f"{where}: {folder} (floor {here}) imports {name} (floor {there})")
    return found


def test_every_folder_imports_lower_floors_only():
    assert violations(PACKAGE) == []


def test_every_folder_has_a_floor():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert folders <= set(FLOORS)


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("ops", "from wordorder.encodings import CATALOG"),
        ("models", "from wordorder.data import prepare"),
        ("training", "import wordorder.inspection.page"),
        ("encodings", "from ..networks.encoder import Encoder"),
        ("encodings", "from .. import networks"),
        ("attention", "def lazy():\n    from wordorder import comparison"),
        ("models", "def lazy():\n    import wordorder.papers"),
        ("training", "import importlib\nimportlib.import_module('wordorder.papers')"),
        ("attention", "def lazy():\n    from wordorder import Encoder"),
        ("data", "import importlib\nimportlib.import_module('wordorder.training')"),
        ("elsewhere", "from wordorder.ops import buckets"),
    ],
)
def test_a_planted_violation_is_caught(tmp_path: Path, folder: str, line: str):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "planted.py").write_text(line + "\n", encoding="utf-8")
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("cli", "from wordorder.training import run"),
        ("networks", "from ..ops import buckets\nfrom . import layer\nfrom wordorder.errors import BadInput"),
        ("models", "from wordorder import __version__"),
    ],
)
def test_an_import_that_goes_down_is_allowed(tmp_path: Path, folder: str, line: str):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "planted.py").write_text(line + "\n", encoding="utf-8")
    assert violations(tmp_path) == []
