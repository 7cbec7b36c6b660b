"""docs/tutorials: every page runs from top to bottom, and prints and draws what it shows."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"


@pytest.fixture
def tutorials(script: Callable[[str], ModuleType]) -> ModuleType:
    """The script that runs the pages."""
    return script("publish_tutorials")


def labels(svg: str) -> list[str]:
    """Return the words of a figure; numbers on its axes depend on the processor."""
    return sorted(word for word in re.findall(r"<text[^>]*>([^<]*)", svg) if re.search("[a-z]", word))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two pages train nine small models
@pytest.mark.usefixtures("catalogue_of_before")
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft 0.21
@pytest.mark.parametrize("file", sorted(TUTORIALS.glob("*.md")), ids=lambda file: file.name)
def test_a_tutorial_prints_what_it_shows(file: Path, tutorials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    page = file.read_text(encoding="utf-8")
    shown = [result for result in tutorials.run(page, file.name) if result.shown is not None]
    assert len(shown) == len(re.findall(r"^```text", page, flags=re.MULTILINE)) > 0
    for result in shown:
        assert result.shown.strip()
        assert result.once or tutorials.agree(result.shown, result.text), result.text
    for figure, svg in tutorials.figures(page).items():
        assert labels(svg) == labels(figure.read_text(encoding="utf-8")) != [], "run publish_tutorials.py"
