"""`wordorder compare RECIPE`: train arms x seeds, and report the results."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wordorder.cli.output import Overrides, print_json
from wordorder.streams import drop_lost_output, printable

if TYPE_CHECKING:
    from wordorder.training import Recipe


def compare(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A recipe in TOML with [compare] and [[compare.arms]].")
    ],
    overrides: Overrides = None,
    own_arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            metavar="FILE.py:CLASS[=NAME]",
            help="Add an encoding of your own as an arm: the file is run, the encoding tried out. May be repeated.",
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", metavar="FOLDER", help="Where the results go; by default as the recipe says."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the recipe, print it resolved, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print results.json; no progress.")] = False,
) -> None:
    """Train every arm with every seed on the same batches; a killed comparison resumes where it stopped.

    Example: **wordorder compare recipes/demo.toml**

    More seeds in the same folder: **wordorder compare recipes/demo.toml --set 'compare.seeds=[0,1,2,3,4,5]'**

    An encoding of your own beside them: **wordorder compare recipes/demo.toml --arm my.py:MyEncoding**
    """
    if not json and not dry_run:
        drop_lost_output()
    from wordorder.training import read_recipe

    if own_arms:  # before the recipe is read, which may name them
        from wordorder.comparison.fairness.own_arm import load_own_arms

        for line in load_own_arms(own_arms):
            print(printable(line), file=sys.stderr)
    resolved = read_recipe(recipe, overrides or ())
    if own_arms:
        from wordorder.comparison.fairness.own_arm import with_own_arms

        resolved = with_own_arms(resolved, own_arms)
    if dry_run:
        _check(resolved)
        print_json(resolved.to_dict()) if json else print(printable(resolved.to_toml()))
        return
    from wordorder.comparison import compare as run_comparison

    _show(run_comparison(resolved, output_dir=output_dir, progress=not json), json=json)


def _check(recipe: "Recipe") -> None:
    """Refuse a recipe that the comparison itself would refuse before it reads data."""
    from wordorder.comparison.fairness.arms import resolve_arms

    resolve_arms(recipe)
    if recipe.compare is not None and recipe.compare.probes:  # they load torch
        from wordorder.comparison.probes.catalog import check_probes

        check_probes(recipe)


def _show(results: Path, *, json: bool) -> None:
    """Print the table of a results file, or the file itself."""
    if json:
        sys.stdout.write(printable(results.read_text(encoding="utf-8")))
        return
    if sys.stdout.isatty():
        from rich.console import Console

        from wordorder.comparison import read_results, render_table

        render_table(read_results(results), Console())
    else:  # a pipe or a file has no width to fit: the same table as markdown
        print(printable((results.parent / "table.md").read_text(encoding="utf-8")))
    print(printable(f"Report: {results.parent / 'report.html'}"))
