"""The code of the documentation: what it makes of Markdown, and that a page with a fault fails `make docs`."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from wordorder.encodings import CATALOG

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
Script = Callable[[str], ModuleType]

FAULTY = 'class Network:\n    """A network.\n\n    Args:\n        colour: none.\n    """\n    def __init__(self): ...\n'
FAULTS = {
    "A [page](nowhere.md).": "nowhere.md",
    "A [page](other.md#no-heading).": "no-heading",
    '<script src="https://cdn.example/x.js"></script>': "index.md loads https://cdn.example/x.js",
    "::: faulty.Network": "'colour' does not appear in the function signature",
    "```math\n\\frac{a}\n```": "an argument is missing",
}
"""Text of a page -> what the build says of it."""


def built(folder: Path, page: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Build a site of two pages with the configuration of the site."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; it comes with the extra docs")
    settings, _ = re.split(r"\n(?:#.*\n)?nav:\n", (ROOT / "mkdocs.yml").read_text())
    (folder / "mkdocs.yml").write_text(f"{settings}\nnav: [index.md, other.md]\n")
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("*.md", "figures", "__pycache__"))
    (folder / "docs/index.md").write_text(f"# Home\n\n{page}\n")
    (folder / "docs/other.md").write_text("# Other\n\n## A heading\n")
    (folder / "src").mkdir()
    (folder / "src/faulty.py").write_text(FAULTY)
    command = [sys.executable, "-m", "mkdocs", "build", *options]
    environment = os.environ | {"NO_COLOR": "1", "NO_MKDOCS_2_WARNING": "true"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_a_page_without_a_fault_is_built(tmp_path: Path):
    done = built(tmp_path, "A [page](other.md#a-heading).\n\n```math\n\\frac{a}{b}\n```", "--strict")
    assert done.returncode == 0, done.stderr
    assert "<mfrac>" in (tmp_path / "site/index.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--strict"], ["--strict", "--quiet"]], ids=" ".join)
def test_faults_of_a_page_fail_the_build_and_are_named(options: list[str], tmp_path: Path):
    done = built(tmp_path, "\n\n".join(FAULTS), *options)
    assert done.returncode == 1
    assert [fault for fault in FAULTS.values() if fault not in done.stderr] == []


def test_a_docstrings_examples_equations_and_tables_are_fenced(script: Script):
    pytest.importorskip("griffe", reason="griffe is not installed; it comes with the extra dev")
    as_markdown = script("docstrings").as_markdown
    table = "=====  ===\nname   is\n=====  ===\nx      y\n=====  ==="
    text = f"Turn.\n\n>>> 1 + 1\n2\n\nSec. 3::\n\n    a = b\n\n    c = d\n\nThen:\n\n{table}\n\nEnd."
    assert as_markdown(text) == (
        "Turn.\n\n\n```pycon\n>>> 1 + 1\n2\n```\n\nSec. 3:\n\n```text\na = b\n\nc = d\n```\n\nThen:\n\n\n"
        f"```text\n{table}\n```\n\nEnd."
    )
    plain = "A sentence: with a colon.\n\nArgs:\n    x: what it is.\n"
    assert as_markdown(plain) == plain


@pytest.mark.parametrize(
    ("latex", "fault"),
    [
        (r"\foo{x}", r"unknown command \\foo"),
        (r"\frac{a}", "argument is missing"),
        (r"{a", "1 opening and 0 closing"),
        (r"\begin{cases} 1", "missing end"),
        (r"\begin{foo} 1 \end{foo}", "unknown environment 'foo'"),
        (r"a_1_2", "double subscripts"),
        (r"a & b", "& outside"),
        (r"a \\ b", "line break outside"),
        (r"50% of it", "comment"),
    ],
)
def test_a_faulty_equation_is_named_with_its_line(latex: str, fault: str, script: Script):
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed; it comes with the extra docs")
    page = f"# Title\n\n```math\nx\n```\n\n- a list\n\n    ```math\n    {latex}\n    ```\n"
    ((line, words),) = script("equations").faults(page)
    assert line == 9
    assert re.search(fault, words), words


def test_the_reference_has_every_public_name_once_by_the_name_that_one_imports(script: Script):
    pages = script("reference_pages")
    text = "\n".join(pages.filled(page.read_text(encoding="utf-8")) for page in (DOCS / "reference").glob("*.md"))
    names = re.findall(r"^::: (\S+)\.(\w+)$", text, flags=re.MULTILINE)
    times = Counter(id(getattr(importlib.import_module(package), name)) for package, name in names)
    assert set(times.values()) == {1}
    assert [f"{package}.{name}" for package, name in names if name not in pages.exported(package)] == []
    folders = (file.parent.name for file in (ROOT / "src" / "wordorder").glob("*/__init__.py"))
    packages = ["wordorder", "wordorder.errors", *(f"wordorder.{folder}" for folder in folders if folder != "cli")]
    for package in packages:
        missing = [name for name, value in pages.exported(package).items() if id(value) not in times]
        assert missing == [], f"{package} exports what the reference lacks"
    assert {id(kind) for kind in CATALOG.values()} <= set(times)
