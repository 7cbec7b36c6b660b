"""`wordorder cost RECIPE`: count parameters, arithmetic and memory of every arm, before anything is trained."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wordorder.cli.output import Overrides, RecipeFile, print_json, print_table, print_text, read_named_recipe

if TYPE_CHECKING:
    from wordorder.comparison.results_file import MatchedBudget

MIB = 2**20

Cost = Mapping[str, Any]
"""One arm of `costs_of`, which documents the values."""


def cost(
    recipe: RecipeFile,
    overrides: Overrides = None,
    json: Annotated[bool, typer.Option("--json", help="Print the costs as JSON.")] = False,
) -> None:
    """Count parameters, FLOPs and memory before training.

    Example: `wordorder cost demo`

    Arms are counted with the widths and segments that compare.match and compare.history give them.

    The vocabulary is that of training where it is cheap to know: byte, an existing tokenizer, a generated task, and
    characters of at most 32 MB of text on this machine. Otherwise no data is read, and it is assumed to have its
    largest size, tokenizer.vocab_size.
    """
    from wordorder.comparison.costs import costs_of
    from wordorder.training.recipe.recipe import check_overrides

    resolved = read_named_recipe(recipe, overrides)
    check_overrides(resolved, overrides or ())
    costs, budget = costs_of(resolved)
    if json:
        matched = {"budget": budget.as_json()} if budget and budget.sentence else {}
        print_json({"recipe": str(recipe), "arms": costs, **matched})
        return
    assumed = sorted({own["vocab_size"] for own in costs if own["vocab_size_is_upper_bound"]})
    print_costs(costs, assumed)
    print_memory(costs)
    if budget is not None:
        print_matched(budget)
    for size in assumed:
        print_text(
            f"Counted with the largest vocabulary, tokenizer.vocab_size = {size:,}. The corpus may give fewer tokens"
            " (characters always give far fewer), and then embedding, head, FLOPs and memory are smaller."
        )


def print_costs(costs: Sequence[Cost], assumed: Sequence[int]) -> None:
    title = "Parameters"
    if assumed:
        title += f" (a vocabulary of {', '.join(f'{size:,}' for size in assumed)} is assumed)"
    parts = ("total", "embedding", "encoding", "body", "head")
    parameters = [(own["arm"], *(own["parameters"][part] for part in parts)) for own in costs]
    print_table(title, ("arm", *parts), parameters, numbers=True)

    encoding = [(own["arm"], part, n) for own in costs for part, n in own["encoding_parameters"].items()]
    print_table("Parameters of the encodings, by part", ("arm", "part", "parameters"), encoding)

    counts = ("forward_flops_per_token", "flops_per_token")
    flops = [(own["arm"], *(f"{own[count] / 1e6:,.3f}" for count in counts)) for own in costs]
    print_table("MFLOP per token of a training step", ("arm", "forward", "with backward"), flops, numbers=True)


def print_memory(costs: Sequence[Cost]) -> None:
    parts = ("parameter", "gradient", "optimizer", "activation")
    rows = [[cost[f"{part}_bytes"] for part in parts] for cost in costs]
    shown = [
        (own["arm"], *(f"{size / MIB:,.1f}" for size in (sum(row), *row))) for own, row in zip(costs, rows, strict=True)
    ]
    heads = ("arm", "total", "parameters", "gradients", "optimizer", "activations")
    title = "MiB in a training step in float32, with AdamW and with attention scores written out"
    print_table(title, heads, shown, numbers=True)


def print_matched(budget: "MatchedBudget") -> None:
    changed = [
        (arm, name, f"{before:,}", f"{now:,}")
        for arm, own in budget.arms.items()
        for name, (before, now) in own.changed.items()
    ]
    if changed:
        print_table("Changed so that arms agree", ("arm", "name", "from", "to"), changed)
    if budget.sentence:
        print_text(budget.sentence)
