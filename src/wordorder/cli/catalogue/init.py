"""`wordorder init`: write a recipe for the reader's own data."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from wordorder.cli.output import print_text
from wordorder.errors import BadInput
from wordorder.section import unknown_choice


def init(
    data: Annotated[
        str, typer.Option(metavar="DATA", help="A file, folder or glob of .txt .jsonl .csv ..., or hub:NAME.")
    ],
    task: Annotated[
        str, typer.Option(metavar="TASK", help="masked-lm, causal-lm, classification, regression or translation.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The recipe to write.")] = Path("recipe.toml"),
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
) -> None:
    """Write a recipe for your own data.

    It compares encodings, in sizes that fit the amount of text, with a comment for each key.

    Example: **wordorder init --data 'texts/*.txt' --task masked-lm --out mine.toml**

    Texts with classes: **wordorder init --data a.csv --task classification --text-column review --label-column stars**

    Encodings by name: **wordorder init --data texts --task causal-lm --encoding rope --encoding alibi**
    """
    from wordorder.tasks import TASKS
    from wordorder.training.recipe.starter import write_starter

    if task not in TASKS:
        raise BadInput(unknown_choice("--task", task, TASKS))
    columns = {"text_column": text_column, "label_column": label_column, "target_column": target_column}
    written = write_starter(data, task, out, translations=target, encodings=encoding or (), columns=columns)
    print_text(f"Written: {written}")
    named = quote(str(written))
    print_text(f"Check it: wordorder compare {named} --dry-run")
    print_text(f"Run it: wordorder compare {named}")
