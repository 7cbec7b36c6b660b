"""`wordorder compare RECIPE`: arms x seeds, and what came of it."""

import sys
from json import loads as parse
from pathlib import Path
from typing import Annotated

import typer

from wordorder.cli.train import Overrides


def compare(
    recipe: Annotated[
        Path,
        typer.Argument(
            metavar="RECIPE", help="A recipe in TOML with [compare] and [[compare.arms]].", show_default=False
        ),
    ],
    overrides: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the recipe, print it resolved, and stop; no data is read.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print results.json; no progress.")] = False,
) -> None:
    """Train every arm with every seed on the same batches; a killed comparison goes on where it stopped.

    Example: **wordorder compare recipes/demo.toml**
    """
    from wordorder.cli.output import print_json
    from wordorder.training import read_recipe

    resolved = read_recipe(recipe, overrides or ())
    if dry_run:
        print_json(resolved.to_dict()) if json else print(resolved.to_toml())
        return
    from wordorder.comparison import compare as run_comparison

    results = run_comparison(resolved, progress=not json)
    if json:
        sys.stdout.write(results.read_text(encoding="utf-8"))
        return
    if sys.stdout.isatty():
        from rich.console import Console

        from wordorder.comparison import render_table

        render_table(parse(results.read_text(encoding="utf-8")), Console())
    else:  # a pipe or a file has no width to fit: the same table as markdown
        print((results.parent / "table.md").read_text(encoding="utf-8"))
    print(f"Report: {results.parent / 'report.html'}")
