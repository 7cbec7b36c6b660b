"""`wordorder compare RECIPE`: train arms x seeds, and report which is better."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wordorder.cli.output import (
    Overrides,
    RecipeFile,
    Use,
    print_json,
    read_named_recipe,
    use_classes,
    warn_of_few_examples,
)
from wordorder.errors import BadInput
from wordorder.files import is_url
from wordorder.streams import drop_lost_output, printable

if TYPE_CHECKING:
    from wordorder.comparison.engines.ray import RayCluster
    from wordorder.training import Recipe

Engine = Literal["local", "ray"]


def compare(
    recipe: RecipeFile,
    overrides: Overrides = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Train with the seeds 0 to N - 1: short for --set compare.seeds=N.")
    ] = None,
    own_classes: Use = None,
    own_arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            metavar="FILE.py:CLASS[=NAME]",
            help="Add an encoding of your own as an arm: the file is run, the encoding tried out. May be repeated.",
        ),
    ] = None,
    output_dir: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the results go, a folder or s3://bucket/folder; by default as the recipe says.",
        ),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(metavar="local|ray", help="Train in processes of this machine, or on a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="auto|HOST:PORT",
            help="The Ray cluster; by default RAY_ADDRESS, or one that is started here for the comparison.",
        ),
    ] = None,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(
            metavar="F",
            help="Ray: GPUs that a run takes, less than 1 to share one; by default 1 where the cluster has GPUs.",
        ),
    ] = None,
    cpus_per_run: Annotated[
        float | None, typer.Option(metavar="N", help="Ray: cores that a run takes; by default 1.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the recipe, print it resolved, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print results.json; no progress.")] = False,
) -> None:
    """Train several encodings with several seeds, and report which is better.

    All are trained on the same batches. A comparison that was stopped goes on where it stopped.

    Example: `wordorder compare demo`

    More seeds in the same folder: `wordorder compare demo --seeds 7`

    An encoding of your own beside them: `wordorder compare demo --arm my.py:MyEncoding`

    On a Ray cluster: `wordorder compare demo --engine ray --address auto`
    """
    if not json and not dry_run:
        drop_lost_output()
    cluster = _cluster(engine, address, gpus_per_run, cpus_per_run)
    use_classes(own_classes)  # before the recipe is read, which may name them
    use_classes(own_arms, "--arm")
    from wordorder.training.recipe.recipe import check_overrides

    short = [] if seeds is None else [f"compare.seeds={seeds}"]
    resolved = read_named_recipe(recipe, [*(overrides or ()), *short])
    if own_arms:
        from wordorder.comparison.arms import with_own_arms

        resolved = with_own_arms(resolved, own_arms)
    check_overrides(resolved, overrides or ())
    if dry_run:
        _check(resolved)
        warn_of_few_examples(resolved)
        print_json(resolved.to_dict()) if json else print(printable(resolved.to_toml()))
        if resolved.compare is not None and not json:
            arms, runs = len(resolved.compare.arms), resolved.compare.runs
            tuned = " after the trials of learning rates" if resolved.compare.tune else ""
            print(f"{arms} models, {runs} runs in all{tuned}. Nothing was trained.", file=sys.stderr)
        return
    from wordorder.comparison import compare as run_comparison

    results = run_comparison(resolved, output_dir=output_dir, progress=not json, ray=cluster)
    _show(results, json=json, place=output_dir or resolved.training.output_dir)


def _check(recipe: "Recipe") -> None:
    from wordorder.comparison.arms import resolve_arms

    resolve_arms(recipe)
    if recipe.compare is not None and recipe.compare.probes:  # they load torch
        from wordorder.comparison.probes.measure import check_probes

        check_probes(recipe)


def _cluster(
    engine: Engine, address: str | None, gpus_per_run: float | None, cpus_per_run: float | None
) -> "RayCluster | None":
    given = {"--address": address, "--gpus-per-run": gpus_per_run, "--cpus-per-run": cpus_per_run}
    if engine == "local":
        if unused := [name for name, value in given.items() if value is not None]:
            raise BadInput(f"{', '.join(unused)}: only for --engine ray; add it, or leave {unused[0]} out")
        return None
    from wordorder.comparison.engines.ray import RayCluster

    cpus = 1 if cpus_per_run is None else cpus_per_run
    return RayCluster(address=address, gpus_per_run=gpus_per_run, cpus_per_run=cpus)


def _show(results: Path, *, json: bool, place: str | None) -> None:
    if json:
        sys.stdout.write(printable(results.read_text(encoding="utf-8")))
        return
    from rich.console import Console

    from wordorder.comparison import read_results, render_table

    render_table(read_results(results), Console())
    report = f"{place}/report.html" if is_url(place) else results.parent / "report.html"
    print(printable(f"Report: {report}"))
