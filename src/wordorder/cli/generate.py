"""`wordorder generate MODEL_DIR [PROMPT]`: continue a text, and show it while it is written."""

import secrets
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wordorder.cli.output import print_json
from wordorder.errors import BadInput, Stopped
from wordorder.streams import lines_of_stdin, printable, progress_bar

if TYPE_CHECKING:
    from wordorder.inference.continuation import Written

_LONG = 500  # tokens, from which on progress is shown where the text itself is not


def generate(
    model_dir: Annotated[
        Path, typer.Argument(metavar="MODEL_DIR", help="A folder with a language model and its tokenizer.")
    ],
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help='The text to continue; "": a new text; left out: read from stdin.'),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Most tokens that are written.")] = 200,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, metavar="T", help="Divides the logits; 0: always the likeliest token. Default: 1."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Draw from so many of the likeliest tokens.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, metavar="P", help="Draw from the likeliest tokens with this probability together."),
    ] = None,
    beams: Annotated[int, typer.Option(min=1, metavar="N", help="More than 1: beam search, which draws nothing.")] = 1,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**63 - 1, metavar="N", help="Seed of the draws. Default: another one each time."),
    ] = None,
    stop_at_end: Annotated[
        bool, typer.Option(help="Stop where the model ends the text, or go on with another one.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print prompt, text and what was drawn by as JSON.")] = False,
) -> None:
    """Generate text.

    Continues a text with a language model, token by token; to any length where the model has a memory.

    Example: `wordorder generate runs/lm/model "The state of the union" --max-new-tokens 1000 --top-p 0.9`

    Only what the model writes goes to stdout. Ctrl-C stops after the present token, with exit code 3.
    """
    from wordorder.inference.continuation import Continuation
    from wordorder.inference.predict import unknown_in
    from wordorder.inference.saved_model import task_of

    drawn = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--seed": seed}
    given = [name for name, value in drawn.items() if value is not None]
    if beams > 1 and given:
        raise BadInput([f"{name} is for drawing, beam search draws nothing; leave out one of them" for name in given])
    if prompt is None:
        task_of(model_dir)  # nobody should be waited for, or write a text, for a folder that is no model
    text = "".join(lines_of_stdin()).rstrip("\r\n") if prompt is None else prompt
    if prompt is None and not text.strip():
        raise BadInput('no text given; write it after the model\'s folder, or send it to stdin; "" begins a new one')
    writer = Continuation(model_dir)
    if note := unknown_in(writer.tokenizer, [text]):
        print(note, file=sys.stderr)
    if beams > 1:
        written: Iterable[Written] = writer.search(
            text, max_new_tokens=max_new_tokens, beams=beams, stop_at_end=stop_at_end
        )
        settings: dict[str, object] = {"beams": beams}
    else:
        draws: dict[str, Any] = {"temperature": 1.0 if temperature is None else temperature}
        draws |= {"top_k": top_k, "top_p": top_p, "seed": secrets.randbelow(2**31) if seed is None else seed}
        written = writer.write(text, max_new_tokens=max_new_tokens, stop_at_end=stop_at_end, **draws)
        settings = draws
    pieces, tokens, ended, signal = show(written, most=max_new_tokens, silent=json)
    if json:
        print_json({"prompt": text, "text": "".join(pieces), "tokens": tokens, "ended": ended, **settings})
    if signal:
        raise Stopped(f"stopped by {signal} after {tokens} tokens")


def show(written: "Iterable[Written]", *, most: int, silent: bool) -> tuple[list[str], int, bool, str | None]:
    """Print each of at most `most` pieces as it comes, or, silent, collect them.

    Returns these, the number of tokens, whether the text ended, and the name of the signal that asked to stop.
    """
    from wordorder.training.loop.interruption import Interruption

    pieces: list[str] = []
    tokens, ended = 0, False
    hidden = silent or not sys.stdout.isatty()
    bar = progress_bar("Writing") if hidden and most >= _LONG else nullcontext()
    with bar as progress, Interruption() as interruption:
        for step in written:
            tokens, ended = tokens + (step.token is not None), ended or step.ended
            if silent:
                pieces.append(step.text)
            else:
                print(printable(step.text) if sys.stdout.isatty() else step.text, end="", flush=bool(step.text))
            if progress is not None:
                progress(tokens, most)
            if interruption.requested is not None:
                break
    if not silent:
        print(flush=True)
    return pieces, tokens, ended, None if interruption.requested is None else interruption.requested.name
