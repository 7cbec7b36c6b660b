"""Compute what the arms of a recipe cost, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from wordorder.comparison.fairness.arms import resolve_arms
from wordorder.comparison.fairness.budget import fit_budget
from wordorder.comparison.pipeline import Pipeline, cost_of_config

if TYPE_CHECKING:
    from wordorder.comparison.results_file import MatchedBudget
    from wordorder.training import Recipe


def costs_of(recipe: Recipe) -> tuple[list[dict[str, Any]], MatchedBudget | None]:
    """Count every arm of a recipe, or its one model, with the sizes that compare.match and compare.history give it.

    The vocabulary is that of training where it is cheap to know (`exact_vocab_size`).

    Returns:
        For each arm its name (`arm`) and what `cost_of` counts; and what was changed so that arms agree, None without
        arms.
    """
    from wordorder.data import exact_vocab_size

    size_of, budget = cache(exact_vocab_size), None
    if recipe.compare is None:
        recipes = {recipe.name: _with_vocabulary(recipe, size_of)}
    else:
        arms = tuple(replace(arm, recipe=_with_vocabulary(arm.recipe, size_of)) for arm in resolve_arms(recipe))
        arms, budget = fit_budget(arms, recipe, pipeline=Pipeline(), config_of=lambda own: _counted_config(own)[0])
        recipes = {arm.name: arm.recipe for arm in arms}
    return [{"arm": name, **cost_of(sized)} for name, sized in recipes.items()], budget


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
    from wordorder.training.recipe.sections import declared_cls

    given = recipe.model.get("vocab_size")
    known = given if given is not None else fixed_vocab_size(recipe.tokenizer)
    size = known if known is not None else recipe.tokenizer.vocab_size
    known_before = declared_cls(recipe.tokenizer) if recipe.pretrained is None else {}
    return build_config(recipe.network, **{**known_before, **recipe.model, "vocab_size": size}), known is not None
