"""What the documentation's own code does: docstrings become Markdown, and nothing is loaded from elsewhere."""

import importlib
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


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
