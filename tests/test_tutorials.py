"""docs/tutorials: every page runs from top to bottom, and prints what it shows."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "convert-a-checkpoint.md",
    "graft-tupe-on-bert.md",
    "memory-language-model.md",
    "my-own-encoding.md",
    "my-own-network.md",
    "my-own-text.md",
    "pretrain-and-fine-tune.md",
]


@pytest.fixture
def tutorials(monkeypatch: pytest.MonkeyPatch):
    """The script that runs pages."""
    monkeypatch.syspath_prepend(str(ROOT / "evidence" / "publish"))
    return importlib.import_module("publish_tutorials")


@pytest.fixture
def known_encodings() -> Iterator[None]:
    """Forget what a page registers and imports."""
    from wordorder.encodings import CATALOG

    before = dict(CATALOG)
    yield
    for name in set(CATALOG) - set(before):
        del CATALOG[name]
    sys.modules.pop("neighbours", None)


def test_every_tutorial_is_run():
    assert sorted(path.name for path in (ROOT / "docs" / "tutorials").glob("*.md")) == PAGES


def labels(svg: str) -> list[str]:
    """Return the words of a figure; numbers on its axes depend on the processor."""
    words = re.findall(r"<text[^>]*>([^<]*)", svg)
    return sorted(word for word in words if re.search("[a-z]", word))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two pages train nine small models
@pytest.mark.usefixtures("known_encodings")
@pytest.mark.parametrize("name", PAGES)
def test_a_tutorial_prints_what_it_shows(name: str, tutorials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    page = (ROOT / "docs" / "tutorials" / name).read_text(encoding="utf-8")
    results = list(tutorials.run(page, name))
    shown = [result for result in results if result.shown is not None]
    assert len(shown) == len(re.findall(r"^```text", page, flags=re.MULTILINE)) > 0
    for result in shown:
        assert result.shown.strip()
        assert result.once or tutorials.agree(result.shown, result.text), result.text
    for figure, svg in tutorials.figures(page).items():
        drawn, committed = map(labels, (svg, figure.read_text(encoding="utf-8")))
        assert drawn
        assert drawn == committed, "run publish_tutorials.py"


def test_a_tutorial_takes_at_most_fifteen_minutes_to_read():
    for name in PAGES:
        words = (ROOT / "docs" / "tutorials" / name).read_text(encoding="utf-8").split()
        assert len(words) < 15 * 100, "code is read more slowly than prose: 100 words a minute"


def test_a_figure_takes_the_colour_of_the_page(tutorials, tmp_path: Path):
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2], label="loss")
    figure.legend()
    with mpl.rc_context(tutorials.DRAWING):
        figure.savefig(tmp_path / "loss.svg")
    svg = tutorials.for_a_page(tmp_path / "loss.svg")
    assert svg.startswith("<svg ")
    assert ">loss</text>" in svg
    assert 'fill="currentColor"' in svg
    assert "stroke: currentColor" in svg
    assert not re.search("<style|<metadata|#000000|#ffffff|\n\n", svg)


def test_outputs_agree_but_for_the_last_digits_of_decimal_numbers(tutorials):
    assert tutorials.agree("rope 0.51, 3 times\n", "rope 0.55, 3 times\n")
    assert not tutorials.agree("rope 0.51\n", "rope 0.65\n")
    assert not tutorials.agree("rope 0.51, 3 times\n", "rope 0.51, 4 times\n")
    assert not tutorials.agree("rope 0.51\n", "rope 0.51\nnone 0.51\n")


def test_outputs_are_written_where_they_are_shown(tutorials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    page = (
        '```json title="a.json"\n[1, 2]\n```\n\n'
        "```python\nimport json\n\nnumbers = [1, 2]\n```\n\n"
        "```python\nprint(sum(numbers))\n```\n\n```text\nold\n```\n\nThe end.\n"
    )
    results = list(tutorials.run(page, "page.md"))
    assert Path("a.json").read_text() == "[1, 2]\n"
    assert tutorials.filled(page, results) == page.replace("old", "3")
