"""The counters of the table of `make lint`, on small made-up sources."""

import importlib
import json
from pathlib import Path

import pytest

from tools import house
from tools.figures import comparison, core, source

ONE = '''"""A module."""

import math  # noqa: F401
from math import pi

Pair = tuple[int, int]


class Plan:
    """A plan."""

    found: int = 1
    """How many."""


def check_size(size):
    if size < 0:
        raise ValueError(size)


def area(size):
    # Squared, since the drawing has no units.
    check_size(size)
    own = size * pi
    return own
'''
TWO = "Pair = int\nclass Plan: ...\nclass Other:\n    given, size = 1, 2\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in {"src/one.py": ONE, "src/parts/two.py": TWO, "src/recipes/a/demo.toml": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / "src"


def test_lines_and_long_files(package: Path):
    assert source.lines(package).number == 29
    assert source.lines(package / "parts").places == ("parts: 4",)
    assert source.long_files(package, limit=10).places == ("one.py: 25",)
    assert source.recipes(package).places == ("recipes/a/demo.toml",)


def test_what_went_is_seen_in_text_and_in_names_of_files(package: Path):
    assert source.mentions(package, r"two\.py|area\(").places == ("one.py:21: def area(size):", "parts/two.py")
    assert source.mentions(package, "streaming").number == 0


def test_names_types_and_comments(package: Path):
    names = source.pronoun_names(package)
    assert names.places == ("one.py:12: found", "one.py:24: own", "parts/two.py:4: given")
    assert names.number == 3 / 6
    assert source.repeated_type_names(package).places == ("Pair: one.py, parts/two.py", "Plan: one.py, parts/two.py")
    assert source.repeated_type_names(package, classes_alone=True).number == 1
    assert source.comments(package).number == pytest.approx(1000 / 29), "of two comments a tool reads one"


def test_checks_are_guards_their_functions_and_calls(package: Path):
    """Of one.py: three lines of `check_size` and one call of it, beside `Pair`, `Plan`, `found` and three of `area`."""
    (package / "parts" / "two.py").unlink()
    assert source.checks(package).number == 4 / 10


def test_a_test_of_the_same_name_stands_at_the_mirrored_place(package: Path, tmp_path: Path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_two.py").touch()
    assert source.untested_files(package, tmp_path / "tests", limit=3).places == ("one.py", "parts/two.py")
    (tmp_path / "tests" / "test_one.py").touch()
    assert source.untested_files(package, tmp_path / "tests", limit=3).places == ("parts/two.py",)


def test_words_and_links(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("three words here\n<!-- facts: rope -->\n\nnot these\n<!-- /facts -->\n")
    (tmp_path / "docs" / "log.md").write_text("left out")
    assert source.words_of_docs(tmp_path / "docs").number == 3
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://github.com/us/it"\n')
    (tmp_path / "README.md").write_text(
        "[a](docs/page.md#b) [b](nowhere.md) <img src='https://raw.githubusercontent.com/us/it/main/c.svg'>\n"
        "[c](https://arxiv.org/abs/1)\n```\n[d](in code)\n```\n[e]: https://github.com/us/it/issues\n"
    )
    links = source.readme_links(tmp_path)
    assert links.number == 5
    assert len(links.places) == 3
    assert "nowhere.md" in links.places


PLANTED = """
class Size:
    def area(self):
        return sum(side * side for side in self.sides())

    def sides(self):
        return [1, 2]

def size():
    from planted.late import LATE
    return Size()
"""


def test_calls_functions_and_types_of_the_package_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "sizes.py").write_text(PLANTED)
    (tmp_path / "planted" / "late.py").write_text("def late():\n    return 1\nLATE = late()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in (core, comparison):
        monkeypatch.setattr(module, "package", lambda: tmp_path / "planted")
    size = importlib.import_module("planted.sizes").size
    functions, types = comparison.used_in(lambda: size().area())
    assert {function.partition(":")[2] for function in functions} == {"size", "Size.area", "Size.sides"}
    assert types == {"Size"}
    assert core.calls_of(lambda: size().area()) == 6, "three functions, and a generator that is entered three times"


def test_a_function_is_counted_where_it_stands(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json, "dumps", json.dumps)  # put back after the test
    calls = comparison.counter_of("json:dumps")
    assert json.dumps([1]) == "[1]"
    assert calls() == 1
    with pytest.raises(AttributeError):
        comparison.counter_of("json:no_such_function")


def test_a_program_that_fails_is_named_in_its_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(house, "PROGRAMS", ("tools.figures.nowhere",))
    monkeypatch.setattr(house, "ROWS", (house.Row("calls", "200", "<= 100", house.printed("calls of an encoder")),))
    house.main([])
    head, row, reason, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["8e4fa2c", "now", "goal"]
    assert row.split() == ["calls", "200", "not", "measured", "<=", "100"]
    assert "No module named" in reason


def test_numbers_that_a_program_prints_stand_in_its_row():
    measure = house.printed("one", "two")
    assert measure({"one": 1234, "two": 5}) == ("1,234; 5", ())
    with pytest.raises(house.NotMeasured, match="it moved"):
        measure({"one": 1234, "two": "it moved"})
