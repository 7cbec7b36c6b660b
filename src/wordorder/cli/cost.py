"""`wordorder cost RECIPE`: count parameters, arithmetic and memory of every arm, before anything is trained."""

from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from wordorder.cli.output import print_json, print_table
from wordorder.cli.train import Overrides
from wordorder.streams import printable
from wordorder.tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wordorder.comparison.fairness.arms import Arm
    from wordorder.comparison.results_file import MatchedBudget
    from wordorder.cost import GPUs
    from wordorder.training import Recipe

MIB = 2**20
CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")
"""Both names that transformers has had for gradient checkpointing."""


def cost(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A recipe in TOML, with arms or without.", show_default=False)
    ],
    overrides: Overrides = None,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="GPUs, each with the recipe's batch.")] = 1,
    sharding: Annotated[
        str | None,
        typer.Option(
            "--sharding",
            metavar="ddp|fsdp",
            help="ddp: each GPU holds all states of training. fsdp: they are divided by N (FSDP2).",
            show_default="fsdp where the recipe has training.fsdp, else ddp",
        ),
    ] = None,
    peak_tflops: Annotated[
        float | None,
        typer.Option("--peak-tflops", metavar="P", help="Peak of one GPU in the recipe's precision; for the time."),
    ] = None,
    utilisation: Annotated[
        float | None,
        typer.Option("--utilisation", metavar="U", help="Share of the peak that training reaches, such as 0.4."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the costs as JSON.")] = False,
) -> None:
    """Count each arm's parameters by part, FLOPs per token and memory, before training.

    Example: **wordorder cost recipes/demo.toml**

    Memory of each of several GPUs, and time = FLOPs / (N x P x U): **wordorder cost recipes/bert_base.toml --gpus 8
    --sharding fsdp --peak-tflops 989 --utilisation 0.4**

    Arms are counted with the widths and segments that compare.match and compare.history give them.

    The vocabulary is that of training where it is cheap to know: byte, an existing tokeniser, and characters of a small
    source on this machine. Otherwise no data is read, and it is assumed to have its largest size, tokenizer.vocab_size.
    """
    from wordorder.cost import GPUs
    from wordorder.training import read_recipe

    asked = GPUs(count=gpus, sharding=cast("Any", sharding or "ddp"), peak_tflops=peak_tflops, utilisation=utilisation)
    resolved = read_recipe(recipe, overrides or ())
    if sharding is None and resolved.training.get("fsdp"):
        asked = replace(asked, sharding="fsdp")
    budget = None
    if resolved.compare is not None:
        arms, budget = matched_arms(resolved)
        recipes = {arm.name: arm.recipe for arm in arms}
    else:
        from wordorder.data import exact_vocab_size

        recipes = {resolved.name: with_vocabulary(resolved, exact_vocab_size)}
    costs = {name: cost_of(own) for name, own in recipes.items()}
    found = {name: on_gpus(own, costs[name], asked) for name, own in recipes.items()}
    if json:
        matched = {"budget": budget.as_json()} if budget and budget.sentence else {}
        each = [{"arm": name, **parts, **found[name]} for name, parts in costs.items()]
        print_json({"recipe": str(recipe), "arms": each, **matched})
        return
    print_costs(costs)
    print_gpus(found, asked)
    if budget is not None:
        print_matched(budget)
    print_assumed(costs)


def matched_arms(recipe: "Recipe") -> "tuple[tuple[Arm, ...], MatchedBudget | None]":
    """Return the arms as `wordorder compare` sizes them, and what it changes."""
    from wordorder.comparison.fairness.arms import resolve_arms
    from wordorder.comparison.fairness.budget import fit_budget
    from wordorder.comparison.pipeline import Pipeline
    from wordorder.data import exact_vocab_size

    size_of = cache(exact_vocab_size)
    arms = tuple(replace(arm, recipe=with_vocabulary(arm.recipe, size_of)) for arm in resolve_arms(recipe))
    if recipe.compare is None:
        return arms, None
    return fit_budget(arms, recipe, pipeline=Pipeline(), config_of=lambda own: counted_config(own)[0])


def with_vocabulary(recipe: "Recipe", size_of: "Callable[..., int | None]") -> "Recipe":
    """Return the recipe with the size of its vocabulary as model.vocab_size, or as it is where that is not known.

    Args:
        recipe: with a vocabulary of its own, which stays, or without.
        size_of: `wordorder.data.exact_vocab_size`, cached where several arms share their data.
    """
    size = None if recipe.model.get("vocab_size") is not None else size_of(recipe.data, recipe.tokenizer)
    return recipe if size is None else replace(recipe, model={**recipe.model, "vocab_size": size})


def print_matched(budget: "MatchedBudget") -> None:
    """Print what was changed so that the arms agree, and how well they do."""
    changed = [
        (arm, name, f"{before:,}", f"{now:,}")
        for arm, own in budget.arms.items()
        for name, (before, now) in own.changed.items()
    ]
    if changed:
        print_table("Changed so that arms agree", ("arm", "name", "from", "to"), changed)
    if budget.sentence:
        print(printable(budget.sentence))


# The other values are those of `wordorder.cost.cost`, which documents them.
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
    from wordorder.training.recipe.pretrained import saved_version
    from wordorder.training.recipe.sections import declared_cls

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
    """Print the parameters of each arm by part, those of its encodings, and its FLOPs."""
    title, assumed = "Parameters", assumed_sizes(costs)
    if assumed:
        title += f" (a vocabulary of {', '.join(f'{size:,}' for size in assumed)} is assumed)"
    parts = ("total", "embedding", "encoding", "body", "head")
    parameters = [(name, *(cost["parameters"][part] for part in parts)) for name, cost in costs.items()]
    print_table(title, ("arm", *parts), parameters, numbers=True)

    encoding = [(name, part, n) for name, cost in costs.items() for part, n in cost["encoding_parameters"].items()]
    print_table("Parameters of the encodings, by part", ("arm", "part", "parameters"), encoding)

    columns = ("arm", "forward FLOPs per token", "with backward")
    flops = [(name, cost["forward_flops_per_token"], cost["flops_per_token"]) for name, cost in costs.items()]
    print_table("Arithmetic of one training step", columns, flops, numbers=True)


def on_gpus(recipe: "Recipe", counted: "Mapping[str, Any]", gpus: "GPUs") -> dict[str, Any]:
    """Return the memory of each GPU, and the FLOPs and the time of a step and of the run on all of them.

    Activations are those of the formula of `wordorder.cost.activation_bytes`, or, for a network that is no stack of
    Transformer layers, those that were counted in float32.
    """
    from wordorder.cost import activation_bytes

    training, pieces = recipe.training, recipe.segments_per_step
    half, checkpointing = bool(training.get("bf16") or training.get("fp16")), any(map(training.get, CHECKPOINTING))
    rows = int(training["per_device_train_batch_size"])
    estimated = activation_bytes(
        counted_config(recipe)[0],
        recipe.data.task,
        length=recipe.segment_length,
        rows=rows,
        half=half,
        checkpointing=checkpointing,
        labelled_share=recipe.data.mask_probability,
    )
    activations = counted["activation_bytes"] if estimated is None else estimated
    memory = gpus.memory(counted, activations=activations, half=half, optimizer=str(training.get("optim")))
    passes = max(1, int(training.get("gradient_accumulation_steps") or 1) // pieces) * pieces
    tokens = rows * passes * recipe.segment_length * (2 if TASKS[recipe.data.task].translates else 1)
    flops = gpus.flops(counted, tokens=tokens, checkpointing=checkpointing)
    steps, seconds = int(training.get("max_steps") or -1), gpus.seconds(flops)
    return {
        "gpus": gpus.count,
        "sharding": gpus.sharding,
        "precision": "float32" if not half else "bf16" if training.get("bf16") else "fp16",
        "gradient_checkpointing": checkpointing,
        "bytes_per_gpu": {**asdict(memory), "total": memory.total},
        "tokens_per_step": gpus.count * tokens,
        "flops_per_step": flops,
        "seconds_per_step": seconds,
        "steps": steps if steps > 0 else None,
        "seconds": steps * seconds if steps > 0 and seconds is not None else None,
    }


def print_gpus(found: "Mapping[str, Mapping[str, Any]]", gpus: "GPUs") -> None:
    """Print the memory of each GPU and the time, one row per arm, or how to ask for the time."""
    settings = {
        one["precision"] + (", gradient checkpointing" if one["gradient_checkpointing"] else "")
        for one in found.values()
    }
    layout = f"{gpus.count:,} GPUs, {gpus.sharding}" if gpus.count > 1 else "one GPU"
    print_table(
        f"MiB of each GPU, by formula ({layout}, {' or '.join(sorted(settings))})",
        ("arm", *next(iter(found.values()))["bytes_per_gpu"]),
        [(name, *(f"{size / MIB:,.1f}" for size in one["bytes_per_gpu"].values())) for name, one in found.items()],
        numbers=True,
    )
    if gpus.peak_tflops is None:
        print("No time is predicted: add --peak-tflops P --utilisation U for FLOPs / (GPUs x P x U). P is on the GPU's")
        print("data sheet, for the recipe's precision; U is the share of it that your training reaches, such as 0.4.")
        return
    print_table(
        f"Time at {gpus.utilisation:.0%} of {gpus.peak_tflops:g} TFLOPS on each GPU, FLOPs / (GPUs x P x U)",
        ("arm", "tokens of a step", "TFLOP of a step", "ms of a step", "steps", "run"),
        [
            (
                name,
                one["tokens_per_step"],
                f"{one['flops_per_step'] / 1e12:,.4g}",
                f"{1e3 * one['seconds_per_step']:,.4g}",
                one["steps"] or "set by epochs",
                in_words(one["seconds"]),
            )
            for name, one in found.items()
        ],
        numbers=True,
    )


def in_words(seconds: float | None) -> str:
    """Return a time in days, hours or minutes; a run that is set by epochs has none before its data is read."""
    if seconds is None:
        return "needs training.max_steps"
    days, hours, minutes = seconds / 86400, seconds / 3600, seconds / 60
    return f"{days:,.1f} days" if days >= 2 else f"{hours:.1f} hours" if hours >= 1 else f"{minutes:.1f} minutes"
