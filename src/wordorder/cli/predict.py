"""`wordorder predict MODEL_DIR`: fill a mask, classify, give a number, or translate."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from wordorder.cli.output import Beams, ModelDir, print_json, print_table
from wordorder.errors import BadInput
from wordorder.streams import lines_of_stdin, printable, progress_bar


def predict(
    model_dir: ModelDir,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts; without any: one a line from stdin.")
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option("--pair", metavar="TEXT", help="The second text of each, in the same order, for models of pairs."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many answers for each mask or text.")] = 5,
    beams: Beams = None,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Translation: sentences at a time.")] = 32,
    max_length: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Translation: most tokens of one, with start and end.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Fill masks, classify, score or translate texts.

    The model does with each text what it was trained for.

    Example: `wordorder predict runs/demo/tupe-r/seed-0/model "the state of the uni[MASK]n"`

    On stdin a tab separates the two texts of a pair, and blank lines are left out. A translation
    model writes one line for each line of stdin: `wordorder predict MODEL_DIR < news.en > news.de`
    """
    from wordorder.inference.predict import answer
    from wordorder.inference.saved_model import reads_pairs, task_of

    task = task_of(model_dir)
    if task.translates:
        if pairs:
            raise BadInput(f"{model_dir}: the model translates single texts; give no second ones")
        print_translations(model_dir, texts, beams=beams, batch_size=batch_size, max_length=max_length, json=json)
        return
    for option, value in (("--beams", beams), ("--max-length", max_length)):
        if value is not None:
            raise BadInput(f"{option} is for translation; {model_dir} holds a model for {task.pipeline}")
    given, seconds = (texts, pairs) if texts else texts_from_stdin(reads_pairs(model_dir))
    if not given:
        raise BadInput("no text given; write texts after the model's folder, or send one a line to stdin")
    answers = answer(model_dir, given, pairs=seconds, top_k=top)
    note_unknown(model_dir, [*given, *(seconds or ())])
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


def print_translations(
    model_dir: Path, texts: list[str] | None, *, beams: int | None, batch_size: int, max_length: int | None, json: bool
) -> None:
    """Print the translation of each text, or of each line of stdin, empty lines included."""
    from wordorder.inference import translate

    given = texts or [line.rstrip("\r\n") for line in lines_of_stdin()]
    if not any(text.strip() for text in given):
        raise BadInput("no text given; write texts after the model's folder, or send one a line to stdin")
    with progress_bar("Translating") as progress:
        found = translate(
            model_dir, given, num_beams=beams, batch_size=batch_size, max_length=max_length, progress=progress
        )
    note_unknown(model_dir, given)
    if json:
        pairs = zip(given, found, strict=True)
        print_json([{"text": text, "answers": [{"translation": other}]} for text, other in pairs])
        return
    shown = "\n".join(text.replace("\n", " ") for text in found)  # a model of bytes may write one
    print(printable(shown) if sys.stdout.isatty() else shown)


def note_unknown(model_dir: Path, texts: list[str]) -> None:
    """Say on stderr where the model's tokenizer does not know what the texts are written in."""
    from wordorder.data.tokenizers import read_tokenizer
    from wordorder.inference.predict import unknown_in

    if note := unknown_in(read_tokenizer(model_dir), texts):
        print(note, file=sys.stderr)


def texts_from_stdin(pairs: bool | None) -> tuple[list[str], list[str] | None]:
    """Read one text a line, or two with a tab between them; the second ones are None where no line has a tab.

    A tab is part of the text where the model reads single ones; `pairs` is None where nobody knows.
    """
    all_lines = [line.rstrip("\r\n") for line in lines_of_stdin()]
    lines = [line for line in all_lines if line.strip()]
    if lines and (blank := len(all_lines) - len(lines)):
        print(f"{blank:,} blank line{'s are' if blank > 1 else ' is'} left out", file=sys.stderr)
    if pairs is False or not any("\t" in line for line in lines):
        return lines, None
    if alone := [line for line in lines if "\t" not in line]:
        raise BadInput(
            [f"a line of stdin has no tab and so no second text, as others have: {line!r}" for line in alone]
        )
    firsts, seconds = zip(*(line.split("\t", 1) for line in lines), strict=True)
    return [*firsts], [*seconds]
