"""`wordorder evaluate MODEL_DIR DATA`: compute exact scores of a saved model."""

import sys
from typing import Annotated, Literal

import typer

from wordorder.cli.output import Beams, DataOptions, ModelDir, metric_rows, options_of_data, print_json, print_table
from wordorder.streams import printable, progress_bar

Split = Literal["train", "validation", "test", "all"]
ContextKind = Literal["segment", "sliding", "memory"]


def evaluate(
    model_dir: ModelDir,
    data: Annotated[str, typer.Argument(metavar="DATA", help="sotu, a file, folder or glob, or hub:NAME.")],
    split: Annotated[
        Split | None,
        typer.Option(
            metavar="train|validation|test|all",
            help="The part to score. Default: test of the run's own source, all of another.",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Examples at a time; does not change the scores.")
    ] = 32,
    target: Annotated[
        str | None, typer.Option(metavar="FILE", help="Translations of the lines of DATA, line by line.")
    ] = None,
    beams: Beams = None,
    context: Annotated[
        ContextKind | None,
        typer.Option(
            metavar="segment|sliding|memory",
            help="Language model: what it reads before a token. Default: memory if it has one, else segment.",
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Context sliding: tokens by which the window moves. Default: half of it."
        ),
    ] = None,
    memory_length: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Context memory: slots. Default: as in training.")
    ] = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Context memory: streams that the text is read in, each from an empty memory; 1 is exact. "
            "Default: as in training.",
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            min=8, metavar="N", help="Language model: tokens of a segment or window. Default: as in training."
        ),
    ] = None,
    overrides: DataOptions = None,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score a saved model on data.

    Gives the loss by token and the scores of its task. Texts are cut and split as in its own run.

    Example: `wordorder evaluate runs/demo/tupe-r/seed-0/model sotu`

    A translation model is scored by loss and by BLEU: `wordorder evaluate MODEL_DIR test.en --target test.de`

    A file that is written otherwise than the run's: `wordorder evaluate MODEL_DIR b.csv --set data.delimiter=';'`

    A language model with a memory, once more without: `wordorder evaluate MODEL_DIR sotu --context sliding --stride
    32`
    """
    from wordorder.inference import Context, evaluate_model_dir

    read = Context(kind=context, stride=stride, memory_length=memory_length, lanes=lanes, length=length)

    scored: list[str] = []

    def say(examples: int, part: str) -> None:
        scored.append(part)
        if not json:
            what = f"scoring {examples:,} examples of {data}, split {part}"
            print(printable(what), file=sys.stderr, flush=True)

    with progress_bar("Translating") as progress:
        scores = evaluate_model_dir(
            model_dir,
            data,
            split=split,
            batch_size=batch_size,
            target=target,
            num_beams=beams,
            context=read,
            changes=options_of_data(overrides),
            progress=progress,
            started=say,
        )
    if json:
        print_json({"model": str(model_dir), "data": data, "split": scored[0], **scores})
        return
    print_table(f"{model_dir} on {data}, {scored[0]} split", ("metric", "value"), metric_rows(scores), numbers=True)
