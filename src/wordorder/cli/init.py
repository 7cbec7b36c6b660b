"""`wordorder init`: write a recipe for the reader's own data, or a copy of one of the package."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from wordorder.cli.output import DataOptions, options_of_data, print_text
from wordorder.errors import BadInput


def init(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A recipe of the package to copy, such as demo.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="A file, folder or glob of texts, or hub:NAME.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="masked-lm, causal-lm, classification, regression or translation."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The recipe to write; by default recipe.toml, or NAME.toml.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="FILE", help="Translations of the lines of DATA, line by line.")
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of DATA with the text. Without it: text.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column with the class or the number. Without it: label.")
    ] = None,
    target_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column with the translation. Without it: target.")
    ] = None,
    encoding: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An encoding to compare; may be repeated. Without it: four usual ones."),
    ] = None,
    overrides: DataOptions = None,
) -> None:
    """Write a recipe for your own data, or copy one of the package.

    A recipe for DATA and TASK compares encodings, in sizes that fit the amount of text, with a comment for each key.

    Example: `wordorder init --data 'texts/*.txt' --task masked-lm --out mine.toml`

    A copy to edit: `wordorder init demo --out my.toml`

    Texts with classes: `wordorder init --data a.csv --task classification --text-column review --label-column stars`

    A spreadsheet's export: `wordorder init --data a.csv --task classification --set data.delimiter=';' --set
    data.file_encoding=cp1252`

    Encodings by name: `wordorder init --data texts --task causal-lm --encoding rope --encoding alibi`
    """
    columns = {"text_column": text_column, "label_column": label_column, "target_column": target_column}
    if name is not None:
        if data or task or target or encoding or overrides or any(columns.values()):
            raise BadInput(f"{name}: a copy takes --out alone; for a recipe of your own data leave {name} out")
        _copy(name, out)
        return
    from wordorder.section import unknown_choice
    from wordorder.tasks import TASKS
    from wordorder.training.recipe.starter import write_starter

    if data is None or task is None:
        raise BadInput("init: write --data DATA --task TASK, or the name of a recipe to copy, such as demo")
    if task not in TASKS:
        raise BadInput(unknown_choice("--task", task, TASKS))
    written = write_starter(
        data,
        task,
        out or Path("recipe.toml"),
        translations=target,
        encodings=encoding or (),
        columns=columns,
        options=options_of_data(overrides),
    )
    print_text(f"Written: {written}")
    print_text(f"Check it: wordorder compare {quote(str(written))} --dry-run")
    print_text(f"Run it: wordorder compare {quote(str(written))}")


def _copy(name: str, out: Path | None) -> None:
    from wordorder.training.recipe.files import copy_recipe, find_recipe

    files = copy_recipe(find_recipe(name), out)
    for path in files:
        print_text(f"Written: {path}")
    print_text(f"Check it: wordorder compare {quote(str(files[0]))} --dry-run")
