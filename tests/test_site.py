"""What the documentation's own code does: docstrings become Markdown, and a page with a fault fails the build."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wordorder

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {
    "good": ("A [page](other.md#a-heading).", None),
    "broken link": ("A [page](nowhere.md).", "nowhere.md"),
    "broken anchor": ("A [page](other.md#no-heading).", "no-heading"),
    "foreign script": ('<script src="https://cdn.example/x.js"></script>', "index.md loads https://cdn.example/x.js"),
    "unknown parameter": (
        "::: faulty.Network",
        "'colour' does not appear in the function signature",
    ),
    "configuration": ("::: sound.Config", None),
    "equation": ("```math\n\\frac{a}{b}\n```", None),
    "faulty equation": ("```math\n\\frac{a}\n```", "index.md, line 3: an argument is missing"),
    "unknown table": ("<!-- catalogue: nothing -->", "index.md: there is no table <!-- catalogue: nothing -->"),
}
FAULTY = 'class Network:\n    """A network.\n\n    Args:\n        colour: none.\n    """\n    def __init__(self): ...\n'
SOUND = """
from huggingface_hub.dataclasses import strict

@strict
class Config:
    \"\"\"A configuration.

    Args:
        width: channels.
    \"\"\"

    width: int = 4
"""


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ('<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ("<img alt=a src='//other.example/a.png'>", ["//other.example/a.png"]),
        ('<link rel="stylesheet" href="https://fonts.example/css">', ["https://fonts.example/css"]),
        ('<link rel="canonical" href="https://example.org/page">', []),
        ('<a href="https://arxiv.org/abs/1706.03762">paper</a><img src="figures/a.svg">', []),
    ],
)
def test_what_a_browser_would_load_is_found(html: str, found: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(DOCS))
    assert importlib.import_module("site_hooks").loaded_from_elsewhere(html) == found


def test_a_docstrings_examples_equations_and_tables_are_fenced(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("griffe", reason="griffe is not installed; it comes with the extra dev")
    monkeypatch.syspath_prepend(str(DOCS))
    as_markdown = importlib.import_module("docstrings").as_markdown
    table = "=====  ===\nname   is\n=====  ===\nx      y\n=====  ==="
    text = f"Turn.\n\n>>> 1 + 1\n2\n\nSec. 3::\n\n    a = b\n\n    c = d\n\nThen:\n\n{table}\n\nEnd."
    assert as_markdown(text) == (
        "Turn.\n\n\n```pycon\n>>> 1 + 1\n2\n```\n\nSec. 3:\n\n```text\na = b\n\nc = d\n```\n\nThen:\n\n\n"
        f"```text\n{table}\n```\n\nEnd."
    )
    plain = "A sentence: with a colon.\n\nArgs:\n    x: what it is.\n"
    assert as_markdown(plain) == plain


def build(folder: Path, page: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Build a site of two pages with the configuration of the site."""
    settings, _ = re.split(r"\n(?:#.*\n)?nav:\n", (ROOT / "mkdocs.yml").read_text())
    (folder / "mkdocs.yml").write_text(f"{settings}\nnav: [index.md, other.md]\n")
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("*.md", "figures", "__pycache__"))
    (folder / "docs/index.md").write_text(f"# Home\n\n{page}\n")
    (folder / "docs/other.md").write_text("# Other\n\n## A heading\n")
    (folder / "src").mkdir()
    (folder / "src/faulty.py").write_text(FAULTY)
    (folder / "src/sound.py").write_text(SOUND)
    command = [sys.executable, "-m", "mkdocs", "build", *options]
    environment = os.environ | {"NO_COLOR": "1", "NO_MKDOCS_2_WARNING": "true"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_with_a_fault_fails_the_build(name: str, tmp_path: Path):
    """`make docs`, with the site's own configuration, on a site of two pages."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; it comes with the extra docs")
    page, fault = PAGES[name]
    target = re.search(r"^docs:.*\n\t.* build (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert target is not None
    built = build(tmp_path, page, *target[1].split())
    assert (built.returncode == 0) is (fault is None), built.stderr
    assert fault is None or fault in built.stderr
    if fault is None:
        html = (tmp_path / "site/index.html").read_text(encoding="utf-8")
        assert f"wordorder {wordorder.__version__}" in html
        # Material's component of this name asks GitHub for the number of stars
        assert 'data-md-component="source"' not in html


@pytest.mark.slow
def test_quiet_does_not_hide_a_fault(tmp_path: Path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; it comes with the extra docs")
    built = build(tmp_path, "A [page](nowhere.md).", "--strict", "--quiet")
    assert built.returncode == 1
    assert "nowhere.md" in built.stderr


def groups(nav: list[Any], title: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield every group of the menu with its title."""
    yield title, nav
    for entry in nav:
        if isinstance(entry, dict):
            for name, of in entry.items():
                yield from groups(of, name) if isinstance(of, list) else [(name, [])]


def test_menus_are_short_and_named_by_their_pages():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; it comes with the extra docs")
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    for title, entries in groups(nav):
        assert 0 < len(entries) <= 8, f"{title or 'the bar of tabs'} has {len(entries)} entries"
        named = [entry for entry in entries if isinstance(entry, dict)]
        assert all(isinstance(of, list) for entry in named for of in entry.values()), "a page's title is its own"
