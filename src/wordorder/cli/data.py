"""`wordorder data RECIPE`: describe a corpus, and check whether its splits are apart."""

from contextlib import suppress
from typing import Annotated, Any

import typer

from wordorder.cli.output import Overrides, RecipeFile, print_json, print_table, read_named_recipe, warn_of_few_examples
from wordorder.errors import BadInput
from wordorder.streams import printable


def data(
    recipe: RecipeFile,
    overrides: Overrides = None,
    examples: Annotated[int, typer.Option(min=0, metavar="N", help="Examples to show for each pair of splits.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show corpus statistics, duplicates and train/test leakage.

    Example: `wordorder data demo`

    Nothing is trained but the tokenizer. Texts are the same if their words are, whatever their case and punctuation.
    """
    from wordorder.tasks.preparation import describe

    resolved = read_named_recipe(recipe, overrides)
    description = describe(resolved.data, resolved.tokenizer, examples=examples)
    if json:
        print_json({"recipe": str(recipe), **description})
        return
    print_description(description)
    with suppress(BadInput):  # what training refuses can be looked at
        warn_of_few_examples(resolved)


def print_description(description: dict[str, Any]) -> None:
    from wordorder.data.reading_log import LEFT_OUT
    from wordorder.tasks.preparation import MOST_UNSAID_UNKNOWN

    counts, lengths = ("documents", "characters", "words", "tokens"), ("min", "median", "95%", "max", "mean")
    splits = description["splits"].items()
    rows = [(name, *(statistics[key] for key in counts)) for name, statistics in splits]
    print_table("Texts", ("split", *counts), rows, numbers=True)
    rows = [(name, *(statistics["tokens_per_document"][key] for key in lengths)) for name, statistics in splits]
    print_table("Tokens per document", ("split", *lengths), rows, numbers=True)
    for name, statistics in splits:
        if statistics["unknown_fraction"] > MOST_UNSAID_UNKNOWN:
            print(f"{statistics['unknown_fraction']:.1%} of the tokens of {name} are [UNK].")
    within = [(name, own["documents"], own["exact"]) for name, own in description["within"].items()]
    if not within:
        print("The texts are generated: none of validation or test is in another split. Duplicates are not looked for.")
        return
    print_table("Duplicates within a split", ("split", "documents", "same words"), within, numbers=True)
    between = [
        (f"{pair['later']} in {pair['earlier']}", pair["exact"], f"{pair['share']:.2%}")
        for pair in description["between"]
    ]
    print_table("Texts that another split has", ("", "same words", "share"), between, numbers=True)
    for pair in description["between"]:
        for example in pair["examples"]:
            print(f"{pair['later']}: {example[pair['later']]!r}")
            print(f"  is like {pair['earlier']}: {example[pair['earlier']]!r}")
    if description["dropped_duplicates"]:
        print(f"{description['dropped_duplicates']:,} texts are left out, because a later split has the same.")
    if description["dropped_empty"]:
        print(f"{description['dropped_empty']:,} rows have no text.")
    for kind, entry in description["passed_over"].items():
        examples = (
            (f"{name} {count:,}" for name, count in entry["files"].items()) if kind == LEFT_OUT else entry["first"][:3]
        )
        print(printable(f"{kind}: {entry['count']:,}; {'; '.join(examples)}"))
