"""What commands print: JSON that every reader takes, and tables that show text as it is."""

import json

import pytest

from wordorder.cli.output import print_json, print_table
from wordorder.streams import printable


def test_json_has_null_where_a_number_is_not_finite(capsys: pytest.CaptureFixture[str]):
    print_json({"loss": float("nan"), "deep": [float("inf"), {"x": (1.5, "é")}]})
    assert json.loads(capsys.readouterr().out) == {"loss": None, "deep": [None, {"x": [1.5, "é"]}]}


def test_a_table_shows_brackets_and_separates_thousands(capsys: pytest.CaptureFixture[str]):
    print_table("the [mask] of [bold]", ("token [x]", "count"), [("[red]", 1_234_567)], numbers=True)
    text = capsys.readouterr().out
    for word in ("the [mask] of [bold]", "token [x]", "[red]", "1,234,567"):
        assert word in text


def test_a_table_says_false_and_true(capsys: pytest.CaptureFixture[str]):
    print_table("scores", ("metric", "value"), [("optimistic", False), ("complete", True)], numbers=True)
    text = capsys.readouterr().out
    assert "false" in text
    assert "true" in text


def test_a_pipe_may_be_given_a_width(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    row = ("many words " * 9, "more words " * 9)
    for columns, widest in ((None, 200), ("60", 60)):
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns:
            monkeypatch.setenv("COLUMNS", columns)
        print_table("wide", ("one", "other"), [row])
        assert widest / 2 < max(map(len, capsys.readouterr().out.splitlines())) <= widest


HOSTILE = "arm\x1b]0;owned\x07\x9b2J\u202eevil\u2066"


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]):
    print_table(HOSTILE, (HOSTILE, "value"), [(HOSTILE, 1)])
    table = capsys.readouterr().out
    assert table.count("arm\\u001b]0;owned\\u0007\\u009b2J\\u202eevil\\u2066") == 3
    print_json({HOSTILE: HOSTILE})
    text = capsys.readouterr().out
    assert json.loads(text) == {HOSTILE: HOSTILE}
    for letter in "\x1b\x07\x9b\u202e\u2066":
        assert letter not in table + text
    assert printable("two\nlines\tand λ é 語") == "two\nlines\tand λ é 語"
