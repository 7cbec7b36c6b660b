"""Help texts: what a newcomer reads, without the types of Python, and commands in groups."""

import re

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import COMMANDS, app

NAMES = [name for commands in COMMANDS.values() for name in commands]


def help_of(*words, width=80):
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(width)})
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("name", NAMES)
def test_help_has_no_types_of_python_and_fits_the_terminal(name):
    text = help_of(name)
    assert not re.search(r"<\w+|\{[A-Z]|\bx>=|list\[|\*\*", text)
    assert max(map(len, text.splitlines())) <= 80
    options = text[text.index("\nOptions:\n") :]
    flags = re.findall(r"^  (--[\w/-]+)  ", options, flags=re.MULTILINE)
    assert "--json" in flags or name in ("init", "recipe-schema")
    valued = re.findall(r"^  --[\w-]+ (\S+)", options, flags=re.MULTILINE)
    assert all(re.fullmatch(r"[A-Z][A-Z_.:=]*(KEY=VALUE)?|\S+\|\S+|FILE.py:CLASS\[=NAME\]", value) for value in valued)
    assert not set(valued) & {"SPLIT", "BATCH_SIZE", "LENGTH", "BEAMS", "CONTEXT", "OUTPUT_DIR"}


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("train", "wordorder train [OPTIONS] RECIPE"),
        ("list", "wordorder list [OPTIONS] [NAME]"),
        ("recipes", "wordorder recipes [OPTIONS] [copy] [NAME] [FILE]"),
        ("predict", "wordorder predict [OPTIONS] MODEL_DIR [TEXT]..."),
        ("generate", "wordorder generate [OPTIONS] MODEL_DIR [PROMPT]"),
    ],
)
def test_the_usage_shows_what_must_be_given(name, usage):
    assert f"Usage: {usage}\n" in help_of(name)


def test_the_program_lists_every_command_in_one_line_by_what_it_is_for():
    text = help_of(width=100)
    places = [text.index(f"\n{title}:\n") for title in COMMANDS]
    assert places == sorted(places)
    for name in NAMES:
        (line,) = re.findall(rf"^  {name}  +(\S.*)$", text, flags=re.MULTILINE)
        assert line[0].isupper()
        assert not line.endswith(".")
    assert "  generate  Generate text\n" in text


def test_defaults_are_shown_where_there_is_one():
    assert "[default: 32]" in help_of("evaluate")
    assert "[default: test]" in help_of("evaluate")
    assert help_of("train").count("default") == 1  # the folder, in words
