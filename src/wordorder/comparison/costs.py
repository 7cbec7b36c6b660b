"""Compute what the arms of a recipe cost, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from wordorder.comparison.fairness.arms import resolve_arms
from wordorder.comparison.fairness.budget import fit_budget
from wordorder.comparison.pipeline import Pipeline, cost_of_config
from wordorder.tasks import TASKS

if TYPE_CHECKING:
    from wordorder.comparison.results_file import MatchedBudget
    from wordorder.cost import GPUs
    from wordorder.training import Recipe


def costs_of(recipe: Recipe, gpus: GPUs) -> tuple[list[dict[str, Any]], MatchedBudget | None]:
    """Count every arm of a recipe, or its one model, with the sizes that compare.match and compare.history give it.

    The vocabulary is that of training where it is cheap to know (`exact_vocab_size`).

    Returns:
        For each arm its name (`arm`), what `cost_of` counts, and what a step and the run take on the GPUs; and what was
        changed so that arms agree, None without arms.
    """
    from wordorder.data import exact_vocab_size

    size_of, budget = cache(exact_vocab_size), None
    if recipe.compare is None:
        recipes = {recipe.name: _with_vocabulary(recipe, size_of)}
    else:
        arms = tuple(replace(arm, recipe=_with_vocabulary(arm.recipe, size_of)) for arm in resolve_arms(recipe))
        arms, budget = fit_budget(arms, recipe, pipeline=Pipeline(), config_of=lambda own: _counted_config(own)[0])
        recipes = {arm.name: arm.recipe for arm in arms}
    costs = {name: cost_of(own) for name, own in recipes.items()}
    return [{"arm": name, **costs[name], **_on_gpus(own, costs[name], gpus)} for name, own in recipes.items()], budget


def cost_of(recipe: Recipe) -> dict[str, Any]:
    """Return the cost of the recipe's model at the recipe's length and batch size, as `wordorder.cost.cost` does.

    Beside it `vocab_size`, that is counted with, and `vocab_size_is_upper_bound`.
    """
    config, known = _counted_config(recipe)
    return {"vocab_size": config.vocab_size, "vocab_size_is_upper_bound": not known, **cost_of_config(recipe, config)}


def _with_vocabulary(recipe: Recipe, size_of: Callable[..., int | None]) -> Recipe:
    """Return the recipe with the size of its vocabulary as model.vocab_size, or as it is where that is not known."""
    size = None if recipe.model.get("vocab_size") is not None else size_of(recipe.data, recipe.tokenizer)
    return recipe if size is None else replace(recipe, model={**recipe.model, "vocab_size": size})


def _counted_config(recipe: Recipe) -> tuple[Any, bool]:
    """Return the configuration of the recipe's model, and whether its vocabulary is known, or is the largest one."""
    from wordorder.data import fixed_vocab_size
    from wordorder.models import build_config
    from wordorder.training.recipe.pretrained import saved_version
    from wordorder.training.recipe.sections import declared_cls

    given = recipe.model.get("vocab_size")
    known = given if given is not None else fixed_vocab_size(recipe.tokenizer)
    size = known if known is not None else recipe.tokenizer.vocab_size
    known_before = declared_cls(recipe.tokenizer) if recipe.pretrained is None else saved_version(recipe.pretrained)
    return build_config(recipe.network, **{**known_before, **recipe.model, "vocab_size": size}), known is not None


def _on_gpus(recipe: Recipe, counted: dict[str, Any], gpus: GPUs) -> dict[str, Any]:
    """Return the memory of each GPU, and the FLOPs and the time of a step and of the run on all of them.

    Activations are those of the formula of `activation_bytes`, or, for a network that is no stack of Transformer
    layers, those that were counted in float32.
    """
    from wordorder.cost import activation_bytes

    training, pieces = recipe.training, recipe.segments_per_step
    half = bool(training.get("bf16") or training.get("fp16"))
    checkpointing = bool(training.get("gradient_checkpointing") or training.get("activation_checkpointing"))
    rows = int(training["per_device_train_batch_size"])
    estimated = activation_bytes(
        _counted_config(recipe)[0],
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
