"""`wordorder recipes` and `wordorder recipe-schema`: show and copy recipes, and describe what they may hold."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from wordorder.cli.output import print_json, print_text
from wordorder.errors import BadInput


def recipes(
    action: Annotated[str | None, typer.Argument(metavar="[copy]", help="Write a copy of a recipe, to edit.")] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The recipe to copy, such as demo.")] = None,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The file to write. Default: NAME.toml here.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the recipes of the package, or copy one to edit.

    Example: **wordorder recipes**

    A copy to edit: **wordorder recipes copy demo my.toml**
    """
    from wordorder.training.recipe.packaged import copy_recipe, find_recipe, packaged_recipes, summary_of

    if action is None:
        found = [summary_of(name) for name in packaged_recipes()]
        if json:
            print_json(found)
            return
        for own in found:
            minutes = f", {own['minutes']} min" if own["minutes"] else ""
            print_text(f"{own['name']} ({own['task']}{minutes})")
            print_text(f"    {own['about']}")
        print_text("\nMinutes are those of the whole comparison on two cores.")
        print_text("Run one: wordorder compare NAME. Edit one: wordorder recipes copy NAME.")
        print_text("For your own data: wordorder init --data FILE --task TASK.")
        return
    if action != "copy":
        raise BadInput(f"recipes {action}: to copy a recipe write wordorder recipes copy {quote(action)}")
    if name is None:
        raise BadInput("recipes copy: which one? write wordorder recipes copy NAME, such as demo")
    for path in (written := copy_recipe(find_recipe(name), file)):
        print_text(f"Written: {path}")
    print_text(f"Check it: wordorder compare {quote(str(written[0]))} --dry-run")


def recipe_schema() -> None:
    """Print the JSON Schema of recipes for editors.

    An editor completes a recipe by it and marks what is wrong. A recipe names it in its first line, `#:schema
    recipe.schema.json`.

    Example: **wordorder recipe-schema > recipe.schema.json**
    """
    from wordorder.training.recipe.schema import recipe_schema

    print_json(recipe_schema())
