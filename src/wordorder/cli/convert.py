"""`wordorder convert CODE CHECKPOINT OUT_DIR`: convert a reference checkpoint to a folder for transformers."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from wordorder.cli.output import print_json, print_table
from wordorder.errors import BadInput
from wordorder.streams import printable

Reference = Literal["tupe", "transformer-xl", "lamemo"]


def convert(
    reference: Annotated[
        Reference,
        typer.Argument(metavar="CODE", help="The code that wrote the checkpoint: tupe, transformer-xl or lamemo."),
    ],
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT",
            help="A .pt file of that code, or a state dict, also as .safetensors.",
        ),
    ],
    out_dir: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="The folder to make; new or empty.")],
    config: Annotated[
        Path | None, typer.Option(metavar="JSON", help="Settings of the model, in place of those in the file.")
    ] = None,
    dictionary: Annotated[
        Path | None, typer.Option(metavar="TXT", help="tupe: fairseq's dict.txt: write a tokeniser for BPE pieces.")
    ] = None,
    head: Annotated[
        str | None, typer.Option(metavar="NAME", help="tupe: which classification head to take, of several.")
    ] = None,
    vocab: Annotated[
        Path | None,
        typer.Option(metavar="TXT", help="transformer-xl, lamemo: the words, one a line: write a tokeniser for words."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier conversion.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Convert a checkpoint of TUPE, Transformer-XL or LaMemo to Hugging Face format.

    Example: `wordorder convert tupe tupe_ckp/model.pt tupe-r-base --dictionary dict.txt`

    Example: `wordorder convert lamemo checkpoint_best.pt lamemo-text8 --vocab letters.txt`

    Nothing in the file is imported or called: torch reads it with weights_only=True, and refuses other objects.
    """
    from wordorder.papers.lamemo import convert_lamemo
    from wordorder.papers.tupe import convert_tupe

    if reference == "tupe":
        _refuse(reference, {"--vocab": vocab})
        report = convert_tupe(checkpoint, out_dir, config=config, dictionary=dictionary, head=head, overwrite=overwrite)
    else:
        _refuse(reference, {"--dictionary": dictionary, "--head": head})
        report = convert_lamemo(checkpoint, out_dir, config=config, vocab=vocab, overwrite=overwrite)
    if json:
        print_json({"out_dir": str(out_dir), **asdict(report)})
        return
    rows = [("parameters", f"{report.parameters:,}"), ("numbers", report.dtype)]
    rows += [("weights mapped", str(len(report.mapped))), ("ignored", ", ".join(report.ignored) or "none")]
    rows += [("loads as", ", ".join(report.architectures)), *((k, str(v)) for k, v in report.config.items())]
    print_table(f"{checkpoint} to {out_dir}", ("", "value"), rows)
    for note in report.notes:
        print(printable(f"{note[0].upper()}{note[1:]}."))


def _refuse(reference: Reference, options: dict[str, object]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise BadInput(f"{', '.join(given)}: not for checkpoints of {reference}; leave it out")
