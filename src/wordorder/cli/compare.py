"""`wordorder compare RECIPE`: train arms x seeds, and report the results."""

import sys
from json import loads as parse
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wordorder.cli.train import Overrides
from wordorder.streams import drop_lost_output, printable

if TYPE_CHECKING:
    from wordorder.training import Recipe


def compare(
    recipe: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe in TOML with [compare] and [[compare.arms]]; with --from further folders instead.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    own_arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            metavar="FILE.py:CLASS[=NAME]",
            help="Add an encoding of your own as an arm: the file is run, the encoding tried out. May be repeated.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Train what fits into 90s, 30m, 2h, 1h30m: seeds are left out, then arms, never steps.",
        ),
    ] = None,
    merged: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FOLDER[:NAME]...",
            help="Put the results of earlier comparisons into one table; nothing is trained. NAME renames arms.",
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", metavar="FOLDER", help="Where the results go; by default as the recipe says."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the recipe, print it resolved, and stop; with --budget print its plan."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print results.json; no progress.")] = False,
) -> None:
    """Train every arm with every seed on the same batches; a killed comparison resumes where it stopped.

    Example: **wordorder compare recipes/demo.toml**

    What fits into half an hour: **wordorder compare recipes/demo.toml --budget 30m**

    An encoding of your own beside them: **wordorder compare recipes/demo.toml --arm my.py:MyEncoding**

    Earlier results in one table: **wordorder compare --from runs/a runs/b --output-dir runs/c**
    """
    from wordorder.cli.output import print_json

    if not json and not dry_run:
        drop_lost_output()
    if merged:
        _refuse({"--set": overrides, "--arm": own_arms, "--budget": budget, "--dry-run": dry_run})
        from wordorder.comparison.merge import merge

        _show(merge([*merged, *map(str, recipe or ())], output_dir=output_dir), json=json)
        return
    from wordorder.comparison.schedule import parse_budget
    from wordorder.training import read_recipe

    seconds = None if budget is None else parse_budget(budget)
    if own_arms:  # before the recipe is read, which may name them
        from wordorder.comparison.own_arm import load_own_arms

        for line in load_own_arms(own_arms):
            print(printable(line), file=sys.stderr)
    resolved = read_recipe(_only(recipe or []), overrides or ())
    if own_arms:
        from wordorder.comparison.own_arm import with_own_arms

        resolved = with_own_arms(resolved, own_arms)
    if dry_run and seconds is None:
        _check(resolved)
        print_json(resolved.to_dict()) if json else print(printable(resolved.to_toml()))
        return
    from wordorder.comparison import compare as run_comparison

    results = run_comparison(resolved, output_dir=output_dir, progress=not json, budget=seconds, plan_only=dry_run)
    if not dry_run:
        _show(results, json=json)
    elif json:
        sys.stdout.write(printable(results.read_text(encoding="utf-8")))


def _check(recipe: "Recipe") -> None:
    """Refuse a recipe that the comparison itself would refuse before it reads data."""
    from wordorder.comparison.arms import resolve_arms

    resolve_arms(recipe)
    if recipe.compare is not None and recipe.compare.probes:  # they load torch
        from wordorder.comparison.probes.options import check_probes

        check_probes(recipe)


def _refuse(given: dict[str, object]) -> None:
    from wordorder.errors import BadInput

    names = [name for name, value in given.items() if value]
    if names:
        raise BadInput(f"{', '.join(names)}: --from trains nothing, so leave it out")


def _only(recipes: list[Path]) -> Path:
    from wordorder.errors import BadInput

    if len(recipes) != 1:
        raise BadInput(
            "RECIPE is missing: name a recipe, or folders of earlier comparisons after --from"
            if not recipes
            else f"RECIPE: one recipe at a time, got {', '.join(map(str, recipes))}; --from merges earlier results"
        )
    return recipes[0]


def _show(results: Path, *, json: bool) -> None:
    """Print the table of a results file, or the file itself."""
    if json:
        sys.stdout.write(printable(results.read_text(encoding="utf-8")))
        return
    if sys.stdout.isatty():
        from rich.console import Console

        from wordorder.comparison import render_table

        render_table(parse(results.read_text(encoding="utf-8")), Console())
    else:  # a pipe or a file has no width to fit: the same table as markdown
        print(printable((results.parent / "table.md").read_text(encoding="utf-8")))
    print(printable(f"Report: {results.parent / 'report.html'}"))
