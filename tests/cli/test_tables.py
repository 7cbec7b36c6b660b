"""Tables fit the terminal, and no name or number in them is broken."""

import io
import sys

import pytest

from wordorder.cli.output import print_table, print_text


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def printed():
    """A function that prints to a terminal of a width, and gives the lines."""

    def lines(width, function, *arguments, **options):
        terminal = Terminal()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(width))
            patch.setenv("TERM", "dumb")
            patch.setattr(sys, "stdout", terminal)
            function(*arguments, **options)
        return terminal.getvalue().splitlines()

    return lines


COLUMNS = ("arm", "parameters", "optimizer", "activations", "forward and backward", "tokens per second", "total")
ROWS = [(f"transformer-{name}", *(10**power + 7 for power in range(6, 12))) for name in ("rope", "content_to_position")]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_numbers_and_names_stay_whole_at_every_width(printed, width):
    lines = printed(width, print_table, "Costs", COLUMNS, ROWS, numbers=True)
    assert max(map(len, lines)) <= width
    words = [word for line in lines for word in line.split()]
    for name, *numbers in ROWS:
        assert name in words
        assert all(f"{number:,}" in words for number in numbers)
    assert {word for column in COLUMNS for word in column.split()} <= set(words)


def test_a_table_that_does_not_fit_is_printed_in_parts_with_the_first_column_in_each(printed):
    wide, narrow = (printed(width, print_table, "Costs", COLUMNS, ROWS, numbers=True) for width in (180, 80))
    assert sum(line.split()[:1] == ["arm"] for line in wide) == 1
    assert sum(line.split()[:1] == ["arm"] for line in narrow) == 3
    assert sum("Costs" in line for line in narrow) == 1


def test_text_is_wrapped_between_words_and_takes_what_is_left(printed):
    rows = [("cls", "none", "unties the token at position 0, for texts that begin with [CLS]"), ("theta", "free", "no")]
    lines = printed(60, print_table, "Options", ("option", "default", "meaning"), rows)
    assert max(map(len, lines)) <= 60
    assert any("  cls      none      unties the token at position" in line for line in lines)
    assert "[CLS]" in " ".join(lines)


def test_a_word_longer_than_any_terminal_is_folded(printed):
    word = "x" * 300
    lines = printed(80, print_table, "Words", ("word", "count"), [(word, 3)])
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("x") == 300


def test_paragraphs_are_wrapped_for_terminals_alone(printed, capsys):
    text = "a sentence of some words " * 10 + "content_to_position"
    lines = printed(80, print_text, text)
    assert max(map(len, lines)) <= 80
    assert " ".join(lines) == text
    assert printed(40, print_text, "    indented by four letters and longer than that")[1].startswith("    ")
    print_text(text)
    assert capsys.readouterr().out == text + "\n"
