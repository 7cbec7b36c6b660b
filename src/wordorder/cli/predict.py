"""`wordorder predict MODEL_DIR`: fill a mask, classify, or give a number."""

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
    pairs: Annotated[
        list[str] | None,
        typer.Option("--pair", metavar="TEXT", help="The second text of each, in the same order, for models of pairs."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many answers for each mask or text.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Fill the masks in each text, classify it, or give its number, by what the model was trained for.

    Example: **wordorder predict runs/demo/tupe-r/seed-0/model "the state of the uni[MASK]n"**

    On stdin a tab separates the two texts of a pair.
    """
    from wordorder.training import answer

    given, seconds = (texts, pairs) if texts else texts_from_stdin()
    if not given:
        raise BadInput("no text given; write texts after the model's folder, or send one a line to stdin")
    answers = answer(model_dir, given, pairs=seconds, top_k=top)
    inputs = [{"text": text} for text in given]
    if seconds:
        inputs = [{**text, "pair": second} for text, second in zip(inputs, seconds, strict=True)]
    if json:
        print_json([{**text, "answers": found} for text, found in zip(inputs, answers, strict=True)])
        return
    for text, found in zip(inputs, answers, strict=True):
        columns = ["probability" if name == "score" else name for name in found[0]]
        rows = [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in guess.values()] for guess in found]
        print_table(" | ".join(text.values()), columns, rows)


def texts_from_stdin() -> tuple[list[str], list[str] | None]:
    """Read one text a line, or two with a tab between them; the second ones are None where no line has a tab."""
    lines = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    if not any("\t" in line for line in lines):
        return lines, None
    parts = [line.partition("\t") for line in lines]
    alone = [first for first, tab, _ in parts if not tab]
    if alone:
        raise BadInput(
            [f"a line of stdin has no tab and so no second text, as others have: {line!r}" for line in alone]
        )
    return [first for first, _, _ in parts], [second for _, _, second in parts]
