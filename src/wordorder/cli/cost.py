"""`wordorder cost RECIPE`: count parameters, arithmetic and memory of every arm, before anything is trained."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wordorder.cli import cost_on_gpus
from wordorder.cli.output import print_json, print_table
from wordorder.cli.train import Overrides
from wordorder.streams import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wordorder.comparison.arms import Arm
    from wordorder.training import Recipe

MIB = 2**20


def cost(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A recipe in TOML, with arms or without.", show_default=False)
    ],
    overrides: Overrides = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="Predict on h100, h200, a100-80, b200, l40s, rtx-4090, or here."),
    ] = None,
    gpus: Annotated[int, typer.Option("--gpus", help="How many of them.")] = 1,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            help="ddp, fsdp2 (sharded over all) or hybrid (sharded over each node).",
            show_default="fsdp2 where the recipe has training.fsdp, else ddp",
        ),
    ] = None,
    per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", help="GPUs of a node.", show_default="the catalogue's")
    ] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="bf16 or float32.", show_default="the recipe's")
    ] = None,
    checkpointing: Annotated[
        bool | None,
        typer.Option("--checkpointing/--no-checkpointing", help="Gradient checkpointing.", show_default="the recipe's"),
    ] = None,
    global_batch: Annotated[
        int | None,
        typer.Option("--global-batch", help="Rows of a step on all GPUs.", show_default="the recipe's on each"),
    ] = None,
    overlap: Annotated[
        bool, typer.Option("--overlap/--no-overlap", help="Communication goes on while GPUs compute.")
    ] = True,
    check: Annotated[
        bool, typer.Option("--check", help="Run some steps on this machine: measured against predicted.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the costs as JSON.")] = False,
) -> None:
    """Count each arm's parameters by part, FLOPs per token and memory, before training.

    Example: **wordorder cost recipes/demo.toml**

    With --gpu: memory, time and what limits them on so many GPUs: **wordorder cost recipes/bert_base.toml --gpu h100
    --gpus 64**

    Arms are counted with the widths and segments that compare.match and compare.history give them.

    The vocabulary is that of training where it is cheap to know: byte, an existing tokeniser, and characters of a small
    source on this machine. Otherwise no data is read, and it is assumed to have its largest size, tokenizer.vocab_size.
    """
    from wordorder.training import read_recipe

    asked = cost_on_gpus.Asked(
        gpu=gpu,
        gpus=gpus,
        strategy=strategy,
        per_node=per_node,
        precision=precision,
        checkpointing=checkpointing,
        global_batch=global_batch,
        overlap=overlap,
        check=check,
    )
    on_gpus = asked.about_devices
    resolved = read_recipe(recipe, overrides or ())
    asked = asked.of_recipe(resolved)
    budget = dict[str, Any]()
    if resolved.compare is not None:
        arms, budget = matched_arms(resolved)
        recipes = {arm.name: arm.recipe for arm in arms}
    else:
        from wordorder.data import exact_vocab_size

        recipes = {resolved.name: with_vocabulary(resolved, exact_vocab_size)}
    costs = {name: cost_of(own) for name, own in recipes.items()}
    if on_gpus:
        cost_on_gpus.tell(recipes, costs, asked, json=json, recipe=str(recipe))
        if not json:
            print_assumed(costs)
        return
    if json:
        matched = {"budget": budget} if budget.get("sentence") else {}
        arms = [{"arm": name, **parts} for name, parts in costs.items()]
        print_json({"recipe": str(recipe), "arms": arms, **matched})
        return
    print_costs(costs)
    print_matched(budget)
    print_assumed(costs)


def matched_arms(recipe: "Recipe") -> "tuple[tuple[Arm, ...], dict[str, Any]]":
    """Return the arms as `wordorder compare` sizes them, and what it changes."""
    from wordorder.comparison.arms import resolve_arms
    from wordorder.comparison.budget import fit_budget
    from wordorder.comparison.pipeline import Pipeline
    from wordorder.data import exact_vocab_size

    size_of = cache(exact_vocab_size)
    arms = tuple(replace(arm, recipe=with_vocabulary(arm.recipe, size_of)) for arm in resolve_arms(recipe))
    if recipe.compare is None:
        return arms, {}
    return fit_budget(arms, recipe, pipeline=Pipeline(), config_of=lambda own: counted_config(own)[0])


def with_vocabulary(recipe: "Recipe", size_of: "Callable[..., int | None]") -> "Recipe":
    """Return the recipe with the size of its vocabulary as model.vocab_size, or as it is where that is not known.

    Args:
        recipe: with a vocabulary of its own, which stays, or without.
        size_of: `wordorder.data.exact_vocab_size`, cached where several arms share their data.
    """
    size = None if recipe.model.get("vocab_size") is not None else size_of(recipe.data, recipe.tokenizer)
    return recipe if size is None else replace(recipe, model={**recipe.model, "vocab_size": size})


def print_matched(budget: "Mapping[str, Any]") -> None:
    """Print what was changed so that the arms agree, and how well they do."""
    changed = [
        (arm, name, f"{before:,}", f"{now:,}")
        for arm, own in budget.get("arms", {}).items()
        for name, (before, now) in own["changed"].items()
    ]
    if changed:
        print_table("Changed so that arms agree", ("arm", "name", "from", "to"), changed)
    if budget.get("sentence"):
        print(printable(budget["sentence"]))


# The other values are those of `wordorder.inspection.cost`, which documents them.
def cost_of(recipe: "Recipe") -> dict[str, Any]:
    """Return the cost of the recipe's model at the recipe's length and batch size, and the vocabulary counted with."""
    from wordorder.comparison.pipeline import cost_of_config

    config, known = counted_config(recipe)
    return {"vocab_size": config.vocab_size, "vocab_size_is_upper_bound": not known, **cost_of_config(recipe, config)}


def counted_config(recipe: "Recipe") -> "tuple[Any, bool]":
    """Return the configuration of the recipe's model without its data, and whether its vocabulary is known.

    A vocabulary that is not known has the largest size that there can be.
    """
    from wordorder.data import fixed_vocab_size
    from wordorder.models import build_config
    from wordorder.training.pretrained import saved_version
    from wordorder.training.run_sections import declared_cls

    given = recipe.model.get("vocab_size")
    known = given if given is not None else fixed_vocab_size(recipe.tokenizer)
    size = known if known is not None else recipe.tokenizer.vocab_size
    known_before = declared_cls(recipe.tokenizer) if recipe.pretrained is None else saved_version(recipe.pretrained)
    fields = {**known_before, **recipe.model, "vocab_size": size}
    return build_config(recipe.network, **fields), known is not None


def assumed_sizes(costs: dict[str, dict[str, Any]]) -> list[int]:
    """Return the sizes of vocabularies that are assumed, since only the data says how large they are."""
    return sorted({parts["vocab_size"] for parts in costs.values() if parts["vocab_size_is_upper_bound"]})


def print_assumed(costs: dict[str, dict[str, Any]]) -> None:
    """Print the sizes of vocabularies that the costs were counted with, where they are assumed."""
    for size in assumed_sizes(costs):
        print(f"Counted with the largest vocabulary, tokenizer.vocab_size = {size:,}. The corpus may give fewer tokens")
        print("(characters always give far fewer), and then embedding, head, FLOPs and memory are smaller.")


def print_costs(costs: dict[str, dict[str, Any]]) -> None:
    """Print one row per arm: first the parameters by part, then arithmetic and memory."""
    title, assumed = "Parameters", assumed_sizes(costs)
    if assumed:
        title += f" (a vocabulary of {', '.join(f'{size:,}' for size in assumed)} is assumed)"
    parts = ("total", "embedding", "encoding", "body", "head")
    parameters = [(name, *(cost["parameters"][part] for part in parts)) for name, cost in costs.items()]
    print_table(title, ("arm", *parts), parameters, numbers=True)

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
