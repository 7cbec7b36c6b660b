"""`wordorder cost RECIPE`: count parameters, arithmetic and memory of every arm, before anything is trained."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from wordorder.cli.output import Overrides, RecipeFile, print_json, print_table, print_text, read_named_recipe

if TYPE_CHECKING:
    from wordorder.comparison.results_file import MatchedBudget
    from wordorder.cost import GPUs

MIB = 2**20

Cost = Mapping[str, Any]
"""One arm of `costs_of`, which documents the values."""


def cost(
    recipe: RecipeFile,
    overrides: Overrides = None,
    gpus: Annotated[int, typer.Option(metavar="N", help="GPUs, each with the recipe's batch.")] = 1,
    sharding: Annotated[
        str | None,
        typer.Option(
            metavar="ddp|fsdp",
            help="ddp: each GPU holds all states of training. fsdp: they are divided by N (FSDP2). Default: fsdp where "
            "the recipe has training.fsdp, else ddp.",
        ),
    ] = None,
    peak_tflops: Annotated[
        float | None, typer.Option(metavar="P", help="Peak of one GPU in the recipe's precision; for the time.")
    ] = None,
    utilisation: Annotated[
        float | None, typer.Option(metavar="U", help="Share of the peak that training reaches, such as 0.4.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the costs as JSON.")] = False,
) -> None:
    """Count parameters, FLOPs and memory before training.

    Example: `wordorder cost demo`

    Memory of each of several GPUs, and time = FLOPs / (N x P x U): `wordorder cost bert_base
    --set data.source=FOLDER --gpus 8 --sharding fsdp --peak-tflops 989 --utilisation 0.4`

    Arms are counted with the widths and segments that compare.match and compare.history give them.

    The vocabulary is that of training where it is cheap to know: byte, an existing tokeniser, and characters of a small
    source on this machine. Otherwise no data is read, and it is assumed to have its largest size, tokenizer.vocab_size.
    """
    from wordorder.comparison.costs import costs_of
    from wordorder.cost import GPUs
    from wordorder.training.recipe.recipe import check_overrides

    resolved = read_named_recipe(recipe, overrides)
    check_overrides(resolved, overrides or ())
    usual = "fsdp" if resolved.training.get("fsdp") else "ddp"
    asked = GPUs(count=gpus, sharding=cast("Any", sharding or usual), peak_tflops=peak_tflops, utilisation=utilisation)
    costs, budget = costs_of(resolved, asked)
    if json:
        matched = {"budget": budget.as_json()} if budget and budget.sentence else {}
        print_json({"recipe": str(recipe), "arms": costs, **matched})
        return
    assumed = sorted({own["vocab_size"] for own in costs if own["vocab_size_is_upper_bound"]})
    print_costs(costs, assumed)
    print_gpus(costs, asked)
    if budget is not None:
        print_matched(budget)
    for size in assumed:
        print_text(
            f"Counted with the largest vocabulary, tokenizer.vocab_size = {size:,}. The corpus may give fewer tokens"
            " (characters always give far fewer), and then embedding, head, FLOPs and memory are smaller."
        )


def print_costs(costs: Sequence[Cost], assumed: Sequence[int]) -> None:
    """Print the parameters of each arm by part, those of its encodings, and its FLOPs."""
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


def print_gpus(costs: Sequence[Cost], gpus: "GPUs") -> None:
    """Print the memory of each GPU and the time, one row per arm, or how to ask for the time."""
    settings = {
        own["precision"] + (", gradient checkpointing" if own["gradient_checkpointing"] else "") for own in costs
    }
    parts = ("total", *(part for part in costs[0]["bytes_per_gpu"] if part != "total"))
    layout = f"{gpus.count:,} GPUs, {gpus.sharding}" if gpus.count > 1 else "one GPU"
    print_table(
        f"MiB of each GPU, by formula ({layout}, {' or '.join(sorted(settings))})",
        ("arm", *parts),
        [(own["arm"], *(f"{own['bytes_per_gpu'][part] / MIB:,.1f}" for part in parts)) for own in costs],
        numbers=True,
    )
    if gpus.peak_tflops is None:
        print_text(
            "No time is predicted: add --peak-tflops P --utilisation U for FLOPs / (GPUs x P x U). P is on the GPU's"
            " data sheet, for the recipe's precision; U is the share of it that your training reaches, such as 0.4."
        )
        return
    print_table(
        f"Time at {gpus.utilisation:.0%} of {gpus.peak_tflops:g} TFLOPS on each GPU, FLOPs / (GPUs x P x U)",
        ("arm", "tokens of a step", "TFLOP of a step", "ms of a step", "steps", "run"),
        [
            (
                own["arm"],
                own["tokens_per_step"],
                f"{own['flops_per_step'] / 1e12:,.4g}",
                f"{1e3 * own['seconds_per_step']:,.4g}",
                own["steps"] or "set by epochs",
                in_words(own["seconds"]),
            )
            for own in costs
        ],
        numbers=True,
    )


def in_words(seconds: float | None) -> str:
    """Return a time in days, hours or minutes; a run that is set by epochs has none before its data is read."""
    if seconds is None:
        return "needs training.max_steps"
    days, hours, minutes = seconds / 86400, seconds / 3600, seconds / 60
    return f"{days:,.1f} days" if days >= 2 else f"{hours:.1f} hours" if hours >= 1 else f"{minutes:.1f} minutes"


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
        print_text(budget.sentence)
