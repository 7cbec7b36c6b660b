"""Help texts: every command has one, with an example, and fits the terminal."""

import re

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import COMMANDS, app


def help_of(*words):
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_names_values_in_words(name):
    text = help_of(name)
    assert f"Example: `wordorder {name}" in text
    assert max(map(len, text.splitlines())) <= 80
    options = text[text.index("\nOptions:\n") :]
    assert "--json" in options or name == "init"
    valued = re.findall(r"^  --[\w-]+ (\S+)", options, flags=re.MULTILINE)
    assert not set(valued) & {"INTEGER", "FLOAT", "PATH"}
    assert not set(valued) & {"SPLIT", "BATCH_SIZE", "LENGTH", "BEAMS", "CONTEXT", "OUTPUT_DIR"}


def test_the_program_lists_every_command_in_one_line():
    text = help_of()
    assert re.findall(r"^  ([a-z]+)  +[A-Z]", text[text.index("\nCommands:\n") :], flags=re.MULTILINE) == [*COMMANDS]


def test_defaults_are_shown_where_there_is_one():
    assert "[default: 32" in help_of("evaluate")
    assert "[default:" not in help_of("train")
