"""`wordorder cost RECIPE`: parameters, arithmetic and memory of every arm, before anything is trained."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wordorder.cli.output import print_json, print_table
from wordorder.cli.train import Overrides

if TYPE_CHECKING:
    from wordorder.training import Recipe

MIB = 2**20


def cost(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A recipe in TOML, with arms or without.", show_default=False)
    ],
    overrides: Overrides = None,
    json: Annotated[bool, typer.Option("--json", help="Print the costs as JSON.")] = False,
) -> None:
    """Count each arm's parameters by part, FLOPs per token and memory, before training.

    Example: **wordorder cost recipes/demo.toml**

    No data is read: a vocabulary that the data decides counts with its largest size, tokenizer.vocab_size.
    """
    from wordorder.comparison.arms import resolve_arms
    from wordorder.training import read_recipe

    resolved = read_recipe(recipe, overrides or ())
    if resolved.compare is None:
        costs = {resolved.name: cost_of(resolved)}
    else:
        costs = {arm.name: cost_of(arm.recipe) for arm in resolve_arms(resolved)}
    if json:
        print_json({"recipe": str(recipe), "arms": [{"arm": name, **parts} for name, parts in costs.items()]})
        return
    print_costs(costs)
    sizes = {parts["vocab_size"] for parts in costs.values() if parts["vocab_size_is_upper_bound"]}
    for size in sorted(sizes):
        print(f"Counted with the largest vocabulary, tokenizer.vocab_size = {size:,}. The corpus may give fewer tokens")
        print("(characters always give far fewer), and then embedding, head, FLOPs and memory are smaller.")


# The other values are those of `wordorder.inspection.cost`, which documents them.
def cost_of(recipe: "Recipe") -> dict[str, Any]:
    """Cost of the recipe's model at the recipe's length and batch size, and the vocabulary that it was counted with."""
    from wordorder.comparison.pipeline import cost_of_config
    from wordorder.data import fixed_vocab_size
    from wordorder.models import build_config

    given = recipe.model.get("vocab_size")
    known = given if given is not None else fixed_vocab_size(recipe.tokenizer)
    size = known if known is not None else recipe.tokenizer.vocab_size
    config = build_config(recipe.network, **{**recipe.model, "vocab_size": size})
    return {"vocab_size": size, "vocab_size_is_upper_bound": known is None, **cost_of_config(recipe, config)}


def print_costs(costs: dict[str, dict[str, Any]]) -> None:
    """Print one row an arm: first the parameters by part, then arithmetic and memory."""
    parts = ("total", "embedding", "encoding", "body", "head")
    parameters = [(name, *(cost["parameters"][part] for part in parts)) for name, cost in costs.items()]
    print_table("Parameters", ("arm", *parts), parameters, numbers=True)

    encoding = [(name, part, n) for name, cost in costs.items() for part, n in cost["encoding_parameters"].items()]
    print_table("Parameters of the encodings, by part", ("arm", "part", "parameters"), encoding)

    forward = "forward FLOPs per token"
    both = "with backward"
    sizes = {key: key.removesuffix("_bytes") for cost in costs.values() for key in cost if key.endswith("_bytes")}
    rows = [
        (
            name,
            round(cost["forward_flops_per_token"]),
            round(cost["flops_per_token"]),
            *(f"{cost[key] / MIB:,.1f}" for key in sizes),
        )
        for name, cost in costs.items()
    ]
    columns = ("arm", forward, both, *(f"{name} MiB".replace("_", " ") for name in sizes.values()))
    print_table("Arithmetic and memory of one training step", columns, rows, numbers=True)
