"""`wordorder data RECIPE`: the texts, tokens and examples of each split, and what is left out."""

import sys
from typing import Annotated

import typer

from wordorder.cli.output import Overrides, RecipeFile, print_json, print_table, print_text, read_named_recipe
from wordorder.streams import printable


def data(
    recipe: RecipeFile,
    overrides: Overrides = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what training reads of a source, and which of its texts stand in two splits.

    Example: `wordorder data demo`

    Nothing is trained but the tokenizer. Texts are the same if their words are, whatever their case and punctuation.
    """
    from wordorder.data.settings import SPLITS
    from wordorder.tasks import prepare
    from wordorder.training.runs.run import few_examples

    resolved = read_named_recipe(recipe, overrides)
    prepared = prepare(resolved.data, resolved.task, resolved.tokenizer, seed=resolved.data.seed)
    statistics, log = prepared.statistics, prepared.log
    if json:
        print_json({"recipe": str(recipe), **statistics, "passed_over": log.summary(), "notes": log.notes})
        return
    splits = {name: statistics[name] for name in SPLITS if name in statistics}
    columns = ("documents", "characters", "words", "tokens", "segments", "without_tokens")
    heads = ("split", *columns[:4], "examples", "empty", "[UNK]")
    rows = [
        (name, *(part[column] for column in columns), f"{part['unknown_fraction']:.2%}")
        for name, part in splits.items()
    ]
    print_table("Texts", heads, rows, numbers=True)
    classes = dict.fromkeys(name for part in splits.values() for name in part.get("classes", ()))
    if classes:
        counts = [(name, *(part["classes"].get(name, 0) for part in splits.values())) for name in classes]
        print_table("Classes", ("class", *splits), counts, numbers=True)
    for kind, counted in log.summary().items():
        print_text("\n  ".join([log.line(kind), *counted["first"][2:]]))
    if dropped := statistics["dropped_duplicates"]:
        print_text(f"{dropped:,} texts are left out, because a later split has the same.")
    if empty := statistics["dropped_empty"]:
        print_text(f"{empty:,} rows have no text.")
    for line in log.notes:
        print_text(line)
    if few := few_examples(statistics):
        print(printable(few), file=sys.stderr)
