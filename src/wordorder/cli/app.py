"""The list of commands."""

from typing import Annotated

import typer

from wordorder import __version__
from wordorder.cli.compare import compare
from wordorder.cli.convert import convert
from wordorder.cli.cost import cost
from wordorder.cli.data import data
from wordorder.cli.evaluate import evaluate
from wordorder.cli.faults import FaultReporter
from wordorder.cli.generate import generate
from wordorder.cli.init import init
from wordorder.cli.inspect import inspect
from wordorder.cli.list import list_names
from wordorder.cli.predict import predict
from wordorder.cli.train import train

app = typer.Typer(
    name="wordorder",
    cls=FaultReporter,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def show_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train and compare positional encodings of Transformers on your own text.

    Example: `wordorder compare demo`

    Exit codes: 0 done, 1 failed while running, 2 bad input, 3 stopped by a signal after saving.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


COMMANDS = {
    "list": list_names,
    "init": init,
    "data": data,
    "cost": cost,
    "train": train,
    "compare": compare,
    "predict": predict,
    "generate": generate,
    "evaluate": evaluate,
    "inspect": inspect,
    "convert": convert,
}
"""Name -> function, in the order of the help."""

for name, function in COMMANDS.items():
    app.command(name)(function)
