"""The script that runs tutorials and writes down what they print and draw."""

import re
from pathlib import Path

import pytest


@pytest.fixture
def tutorials(script):
    """The script, as a module."""
    return script("publish_tutorials")


def test_a_figure_has_the_colours_of_light_and_dark_pages(tutorials, tmp_path: Path):
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2], label="loss")
    figure.legend()
    with mpl.rc_context(tutorials.DRAWING):
        figure.savefig(tmp_path / "loss.svg")
    svg = tutorials.for_a_page(tmp_path / "loss.svg")
    assert ">loss</text>" in svg
    assert re.search(r'<svg [^>]*fill="currentColor" width="[0-9.]+pt"', svg)
    assert "stroke: currentColor" in svg
    assert svg.count("<style>") == 1
    assert "prefers-color-scheme:dark" in svg
    assert not re.search("<metadata|#000000|#ffffff|\n\n", svg)


def test_outputs_agree_but_for_the_last_digits_of_decimal_numbers(tutorials):
    assert tutorials.agree("rope 0.51, 3 times\n", "rope 0.55, 3 times\n")
    assert not tutorials.agree("rope 0.51\n", "rope 0.65\n")
    assert not tutorials.agree("rope 0.51, 3 times\n", "rope 0.51, 4 times\n")
    assert not tutorials.agree("rope 0.51\n", "rope 0.51\nnone 0.51\n")


def test_outputs_are_written_where_they_are_shown(tutorials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    page = '```json title="a.json"\n[1, 2]\n```\n\n```python\nprint(3)\n```\n\n```text\nold\n```\n\nThe end.\n'
    results = list(tutorials.run(page, "page.md"))
    assert Path("a.json").read_text() == "[1, 2]\n"
    assert tutorials.filled(page, results) == page.replace("old", "3")
