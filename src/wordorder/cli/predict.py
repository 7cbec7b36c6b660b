"""`wordorder predict MODEL_DIR`: fill a mask, or classify."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from wordorder.cli.output import print_json, print_table
from wordorder.errors import BadInput


def predict(
    model_dir: Annotated[
        Path, typer.Argument(metavar="MODEL_DIR", help="A folder with a model and its tokenizer.", show_default=False)
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts; without any: one a line from stdin.", show_default=False),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many answers for each mask or text.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Fill the masks in each text, or classify each text, by what the model was trained for.

    Example: **wordorder predict runs/demo/tupe-r/seed-0/model "the state of the uni[MASK]n"**
    """
    from wordorder.training import classify, fill_mask
    from wordorder.training.predict import task_of

    task = task_of(model_dir)
    given = texts or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    if not given:
        raise BadInput("no text given; write texts after the model's folder, or send one a line to stdin")
    answers = (fill_mask if task == "fill-mask" else classify)(model_dir, given, top_k=top)
    if json:
        print_json([{"text": text, "answers": found} for text, found in zip(given, answers, strict=True)])
        return
    for text, found in zip(given, answers, strict=True):
        columns = [name for name in found[0] if name != "score"]
        rows = [(*(str(guess[name]) for name in columns), f"{guess['score']:.3f}") for guess in found]
        print_table(text, (*columns, "probability"), rows)
