"""Options of several commands, and their output: JSON for machines on stdout and nothing else there, or a table."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wordorder.durable import finite
from wordorder.streams import printable

if TYPE_CHECKING:
    from wordorder.training import Recipe

RecipeFile = Annotated[
    Path,
    typer.Argument(metavar="RECIPE", help="A recipe's file, or one of wordorder recipes, such as demo."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one value of the recipe; may be repeated."),
]
ModelDir = Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="A folder with a model and its tokenizer.")]
Beams = Annotated[
    int | None, typer.Option(min=1, help="Translation: beams of the search; 1 is greedy. Default: as in its run.")
]


def read_named_recipe(given: Path, overrides: Sequence[str] | None) -> "Recipe":
    """Read a recipe by its path, or by its name if it comes with the package.

    Raises:
        BadInput: there is no such recipe, or it is wrong.
    """
    from wordorder.training import read_recipe
    from wordorder.training.recipe.packaged import find_recipe

    return read_recipe(find_recipe(given), overrides or ())


def print_json(value: object) -> None:
    """Print one JSON document; numbers that JSON has no name for become null, so that every reader takes it."""
    text = json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)
    print(printable(text))


# The values come from JSON-like results of other folders, whose element types are theirs to know.
def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: bool = False) -> None:
    """Print a table.

    Args:
        title: the line above it.
        columns: the headings.
        rows: one sequence of cells a row; integers get thousands separators, truth values are those of JSON.
        numbers: align every column but the first to the right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text, not str: what users wrote may hold brackets, such as [mask], which rich would take for its own markup.
    table = Table(box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(Text(printable(column)), justify="right" if numbers and index else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    # A pipe or a file has no width of its own, unless COLUMNS gives it one; rich would fold the cells into 80 columns.
    console = Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 200)
    console.print(Text(printable(title), style="bold"))
    console.print(table)


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
