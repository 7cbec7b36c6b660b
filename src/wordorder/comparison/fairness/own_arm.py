"""`--arm my.py:MyEncoding`: an encoding from the user's own file as an arm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from wordorder.encodings import names_in
from wordorder.errors import BadInput
from wordorder.own_classes import own_classes, parse_own_class

if TYPE_CHECKING:
    from wordorder.training import Recipe


def with_own_arms(recipe: Recipe, texts: Iterable[str]) -> Recipe:
    """Return the recipe with an arm for each --arm, unless one of its own arms has that encoding already."""
    if recipe.compare is None:
        raise BadInput("--arm: the recipe has no [compare] section; add compare.seeds and a [[compare.arms]]")
    raw: Mapping[str, Any] = recipe.raw["compare"]
    used = {part for arm in recipe.compare.arms for part in names_in(_of_network(recipe, arm.overrides, "encoding"))}
    added: list[dict[str, Any]] = []
    for text in texts:
        name = parse_own_class(text, "--arm").name
        if name in used:
            continue
        used.add(name)
        arm: dict[str, Any] = {"name": name, "model.encoding": name}
        if recipe.model.get("encoding_options"):
            arm["model.encoding_options"] = {}  # those of the recipe are another encoding's
        added.append(arm)
    return recipe.with_overrides({"compare.arms": [*raw.get("arms", []), *added]}) if added else recipe


def own_classes_of(recipes: Iterable[Recipe]) -> dict[str, dict[str, dict[str, str]]]:
    """Return class, file and sha256 of the encodings and memories in the recipes that are not of the package."""
    several = list(recipes)
    encodings = {name for recipe in several for name in names_in(_of_network(recipe, {}, "encoding"))}
    return own_classes(encodings, {_of_network(recipe, {}, "memory") for recipe in several})


def _of_network(recipe: Recipe, overrides: Mapping[str, Any], field: str) -> str:
    """Return a field of an arm's network; "none" if it has no such field."""
    table = overrides.get("model", {})
    return str(overrides.get(f"model.{field}", table.get(field, recipe.model.get(field, "none"))))
