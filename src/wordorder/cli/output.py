"""Options of several commands, and their output: JSON for machines on stdout and nothing else there, or a table."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wordorder.errors import BadInput
from wordorder.files import finite
from wordorder.streams import printable

if TYPE_CHECKING:
    from wordorder.training import Recipe

_LONGEST_WORD, _GAP = 40, 3  # letters; characters between two columns

RecipeFile = Annotated[
    Path,
    typer.Argument(metavar="RECIPE", help="A recipe's file, or one of wordorder list recipes, such as demo."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one value of the recipe; may be repeated."),
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="How DATA is read, as data.KEY or task.KEY of recipes; may be repeated."
    ),
]
Use = Annotated[
    list[str] | None,
    typer.Option(
        "--use",
        metavar="FILE.py:CLASS[=NAME]",
        help="Register an encoding or memory of your own, which the recipe names: the file is run, the class tried out."
        " May be repeated.",
    ),
]
ModelDir = Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="A folder with a model and its tokenizer.")]
Beams = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Translation: beams of the search; 1 is greedy. Default: as in its run."),
]


def use_classes(texts: Sequence[str] | None, option: Literal["--use", "--arm"] = "--use") -> None:
    """Register classes of the user's own files, and print on stderr what was tried; an arm is an encoding."""
    if not texts:
        return
    from wordorder.encodings import Encoding
    from wordorder.memory import Memory
    from wordorder.own_classes import use_own_classes

    bases = (Encoding, Memory) if option == "--use" else (Encoding,)
    for line in use_own_classes(texts, option=option, bases=bases):
        print(printable(line), file=sys.stderr)


def read_named_recipe(given: Path, overrides: Sequence[str] | None) -> "Recipe":
    """Read a recipe by its path, or by its name if it comes with the package."""
    from wordorder.training import read_recipe
    from wordorder.training.recipe.files import find_recipe

    return read_recipe(find_recipe(given), overrides or ())


def options_of_data(texts: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Return the keys of [data] and [task] that `--set SECTION.KEY=VALUE` gives, and their values, by section."""
    from wordorder.training.recipe.files import parse_value

    options: dict[str, dict[str, Any]] = {"data": {}, "task": {}}
    for text in texts or ():
        name, equals, value = text.partition("=")
        section, _, key = name.partition(".")
        if section not in options or not key or not equals:
            raise BadInput(f"--set {text}: takes data.KEY=VALUE or task.KEY=VALUE here, such as data.delimiter=';'")
        options[section][key] = parse_value(value)
    return options


def warn_of_few_examples(recipe: "Recipe") -> None:
    """Print one line on stderr where validation or test of a small source have few examples."""
    from wordorder.tasks import prepare_small
    from wordorder.training.runs.run import few_examples

    prepared = prepare_small(recipe.data, recipe.task, recipe.tokenizer)
    if prepared is not None and (few := few_examples(prepared.statistics)):
        print(printable(few), file=sys.stderr)


def print_json(value: object) -> None:
    """Print one JSON document; numbers that JSON has no name for become null."""
    text = json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)
    print(printable(text))


def print_text(text: str) -> None:
    """Print a paragraph, its lines no longer than the terminal, words whole."""
    width = _width()
    lines = text.split("\n") if width is None else [part for line in text.split("\n") for part in _wrapped(line, width)]
    print(printable("\n".join(lines)))


def _wrapped(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    wrap = textwrap.TextWrapper(width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return wrap.wrap(line) or [""]


def _width() -> int | None:
    """Return the width of the terminal, or None for a pipe or a file, unless COLUMNS gives it one."""
    fits = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return shutil.get_terminal_size().columns if fits else None


# The values come from JSON-like results of other folders, whose element types are theirs to know.
def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: bool = False) -> None:
    """Print a table; where it is wider than the terminal, as several with the same first column.

    Names and numbers stay whole: cells are wrapped between words only, but for words of more than 40 letters. Integers
    get thousands separators, truth values are those of JSON. `numbers` aligns every column but the first to the right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = _width() or 200
    console = Console(width=width, height=25)  # without a height rich takes 80 columns where TERM is dumb
    cells = [[printable(column) for column in columns], *([_cell(cell) for cell in row] for row in rows)]
    console.print(Text(printable(title), style="bold"))
    for group in _groups(list(zip(*cells, strict=True)), width):
        # Text, not str: what users wrote may hold brackets, such as [mask], which rich would take for its own markup.
        table = Table(box=box.SIMPLE_HEAD)
        for index, size in group.items():
            side = "right" if numbers and index else "left"
            table.add_column(Text(cells[0][index]), justify=side, overflow="fold", width=size)
        for row in cells[1:]:
            table.add_row(*(Text(row[index]) for index in group))
        console.print(table)


def _groups(columns: Sequence[Sequence[str]], width: int) -> list[dict[int, int]]:
    """Divide columns into tables that fit a width, the first column in each; return the widths of each by column."""
    needed = [_widest(word for cell in column for word in cell.split()) for column in columns]
    needed = [min(size, _LONGEST_WORD) for size in needed]
    groups, group = list[list[int]](), [0]
    for index in range(1, len(columns)):
        if len(group) > 1 and sum(needed[i] + _GAP for i in (*group, index)) >= width:
            groups, group = [*groups, group], [0]
        group = [*group, index]
    return [_widths(own, needed, [_widest(column) for column in columns], width) for own in (*groups, group)]


def _widths(group: Sequence[int], needed: Sequence[int], full: Sequence[int], width: int) -> dict[int, int]:
    """Return the width of each column: what it needs, and an equal share of the rest until nothing is wrapped."""
    found = {index: needed[index] for index in group}
    left = width - 1 - sum(size + _GAP for size in found.values())
    wrapped = sorted(group, key=lambda index: full[index] - found[index])
    for place, index in enumerate(wrapped):
        more = max(0, min(full[index] - found[index], left // (len(wrapped) - place)))
        found[index] += more
        left -= more
    return found


def _widest(texts: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=1)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def metric_rows(metrics: dict[str, object]) -> list[tuple[str, object]]:
    """Flatten metrics by split into rows."""
    rows: list[tuple[str, object]] = []
    for name, value in metrics.items():
        if isinstance(value, dict):
            rows += [(f"{name} {inner}", cell) for inner, cell in metric_rows(value)]  # pyright: ignore[reportUnknownArgumentType]
        else:
            rows.append((name, f"{value:.5g}" if isinstance(value, float) else value))
    return rows
