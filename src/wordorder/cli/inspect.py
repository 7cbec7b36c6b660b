"""`wordorder inspect MODEL_DIR`: show what a trained model has learned about positions, as figures and numbers."""

from pathlib import Path
from typing import Annotated

import typer

from wordorder.cli.output import print_json, print_table
from wordorder.streams import printable


def inspect(
    model_dir: Annotated[
        Path, typer.Argument(metavar="MODEL_DIR", help="A folder with an encoder, or with a causal language model.")
    ],
    length: Annotated[
        int | None,
        typer.Option(metavar="N", help="Positions to look at; default: all that the model takes, up to 512."),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for the figures; default: inspect, beside MODEL_DIR.")
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The text that a language model reads."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the content of numbers.json.")] = False,
) -> None:
    """Show what a model has learned about positions.

    Draws maps of the positional correlation, and measures how much of it is distance alone.

    Example: `wordorder inspect runs/demo/tupe-r/seed-0/model`

    A causal language model is watched while it reads --text: attention by distance, effective context length, and
    what the slots of a look-ahead memory keep as they age; --length is then its segments'.
    """
    from wordorder.inspection import inspect_model_dir
    from wordorder.training.loop.progress import quiet_libraries

    with quiet_libraries():
        saved = inspect_model_dir(model_dir, output_dir, length=length, text=text)
    if json:
        print_json({"folder": str(saved.folder), **saved.numbers})
        return
    for table in saved.tables:
        print_table(table.title, table.columns, table.rows, numbers=True)
    for line in (*(f"{answer}." for answer in saved.inspection.answers()), *saved.inspection.notes):
        print(printable(line))
    shown = "inspect.html" if "inspect.html" in saved.files else "numbers.json"
    print(printable(f"Written: {saved.folder / shown}"))
