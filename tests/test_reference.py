"""The Python reference has every public name once, by the name that one imports."""

import importlib
import inspect
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from wordorder.encodings import CATALOG

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
PACKAGES = sorted(
    f"wordorder.{folder.relative_to(ROOT / 'src' / 'wordorder')}".replace("/", ".")
    for pattern in ("*", "papers/*")
    for folder in (ROOT / "src" / "wordorder").glob(pattern)
    if (folder / "__init__.py").is_file() and folder.name != "cli"
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What makes the pages of the reference."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("reference_pages")


@pytest.fixture
def shown(made: ModuleType) -> list[str]:
    """List the names that the pages of the reference show, as the site is built."""
    texts = [made.filled(page.read_text(encoding="utf-8")) for page in PAGES]
    return [name for text in texts for name in re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)]


def value_of(name: str) -> object:
    package, _, last = name.rpartition(".")
    return getattr(importlib.import_module(package), last)


def test_every_public_class_and_function_is_in_the_reference_once(made: ModuleType, shown: list[str]):
    values = Counter(id(value_of(name)) for name in shown)
    assert [name for name in shown if values[id(value_of(name))] > 1] == []
    for package in ("wordorder", "wordorder.errors", *PACKAGES):
        missing = [name for name, value in made.exported(package).items() if id(value) not in values]
        assert missing == [], f"{package} exports what the reference lacks"
    assert all(id(kind) in values for kind in CATALOG.values())


def test_headings_are_names_that_one_imports(made: ModuleType, shown: list[str]):
    for name in shown:
        package, _, last = name.rpartition(".")
        assert last in made.exported(package), f"{package} does not export {last}"
        assert package.removeprefix("wordorder.papers.").count(".") <= 1, f"{name} is the path of a file"


def test_what_a_package_exports_is_found(made: ModuleType):
    for package in (
        "wordorder.models",
        "wordorder.encodings",
        "wordorder.memory",
        "wordorder.networks",
        "wordorder.ops",
    ):
        module = importlib.import_module(package)
        # what a type checker calls private: imported for the module's own use, under no new name
        source = inspect.getsource(module)
        private = set(re.findall(r"^from \S+ import (\w+)$", source, flags=re.MULTILINE))
        kinds = {
            name
            for name, value in vars(module).items()
            if (inspect.isclass(value) or inspect.isfunction(value)) and not name.startswith("_")
        }
        assert made.exported(package).keys() == kinds - private
