"""`wordorder train RECIPE`: train one model."""

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from wordorder.cli.output import (
    Overrides,
    RecipeFile,
    Use,
    metric_rows,
    print_json,
    print_table,
    read_named_recipe,
    use_classes,
    warn_of_few_examples,
)
from wordorder.launch import is_main
from wordorder.streams import drop_lost_output, printable


def train(
    recipe: RecipeFile,
    overrides: Overrides = None,
    own_classes: Use = None,
    pretrained: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL_DIR", help="Start from a saved model: short for --set model.pretrained."),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The run folder: short for --set training.output_dir.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest valid checkpoint.")] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Keep the last K checkpoints, the best one among them: short for --set training.keep_checkpoints.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the recipe, print it resolved, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON; no progress.")] = False,
) -> None:
    """Train one model from a recipe.

    The model and its metrics are written to the run folder, by default runs/ and the recipe's name.

    Example: `wordorder train demo --set training.max_steps=200 --set model.encoding=rope`
    """
    use_classes(own_classes)
    short = [f"model.pretrained={dumps(str(pretrained))}"] if pretrained is not None else []
    short += [f"training.output_dir={dumps(str(output_dir))}"] if output_dir is not None else []
    short += [f"training.keep_checkpoints={keep}"] if keep is not None else []
    resolved = read_named_recipe(recipe, [*(overrides or ()), *short])
    if dry_run and not is_main():
        return
    if dry_run:
        warn_of_few_examples(resolved)
        print_json(resolved.to_dict()) if json else print(printable(resolved.to_toml()))
        return
    from wordorder.training import run

    if not json:
        drop_lost_output()
    result = run(resolved, resume=resume, progress=not json)
    if not is_main():
        return
    if json:
        print_json({"model": str(result.model_dir), **result.metrics})
        return
    shown = {name: value for name, value in result.metrics.items() if name != "batches"}  # digests, for comparisons
    print_table(f"Model in {result.model_dir}", ("metric", "value"), metric_rows(shown), numbers=True)
