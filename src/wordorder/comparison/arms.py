"""Resolve a [compare] section into one recipe per arm, or refuse it as unfair; a class of one's own is an arm too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from wordorder.comparison.statistics.summary import metric_of
from wordorder.encodings import names_in
from wordorder.errors import BadInput
from wordorder.own_classes import own_classes, parse_own_class
from wordorder.tasks.translation import TranslationOptions
from wordorder.training.recipe.files import split_key
from wordorder.training.recipe.pretrained import tokenizer_content
from wordorder.training.recipe.settings import FREE, marked

if TYPE_CHECKING:
    from wordorder.data import TokenizerConfig
    from wordorder.training import ArmConfig, CompareConfig, Recipe

REASONS = {
    "batch_size": "the arms would see different batches",
    "max_steps": "the arms would see different amounts of data",
    "epochs": "the arms would see different amounts of data",
    "segments_per_step": 'compare.history = "equal" sets it',
    "eval_stride": 'compare.history = "equal" sets it',
}
"""Reasons why an arm may not override these names of [training]; all others that are not free share one reason."""

WRITTEN = frozenset({"figures", "results.json", "table.md", "report.html", "recipe.toml", "metrics.json"})
"""Names that no arm may have: a comparison or a run writes files of these names."""

RATE, OWN_RATE = "training.learning_rate", "training.encoding_learning_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One arm of the comparison: the shared recipe with this arm's overrides applied."""

    name: str
    recipe: Recipe


def resolve_arms(recipe: Recipe) -> tuple[Arm, ...]:
    """Apply each arm's overrides to the recipe."""
    if recipe.compare is None:
        raise BadInput("the recipe has no [compare] section; add compare.seeds and one [[compare.arms]] per encoding")
    compare = recipe.compare
    faults = _name_faults(compare)
    by_bleu = compare.grid and metric_of(recipe.task.name, recipe.training.select) == "bleu"
    translates = isinstance(recipe.task, TranslationOptions) and recipe.task.translate_while_training
    if by_bleu and not translates:
        faults.append(
            "compare.grid judges the rates by BLEU on validation: set task.translate_while_training=true, or "
            "choose by training.select=accuracy, or use compare.tune, which judges by the loss"
        )
    arms: list[Arm] = []
    for arm in compare.arms:
        own = _unfair(arm, compare)
        if not own:
            try:
                arms.append(Arm(name=arm.name, recipe=recipe.for_arm(arm)))
                own = _data_faults(recipe, arms[-1])
            except BadInput as error:
                own = [f"compare.arms {arm.name!r}: {fault}" for fault in error.faults]
        faults += own
    faults = faults or _seed_faults(recipe, compare, arms)
    if faults:
        raise BadInput(faults)
    return tuple(arms)


def _unfair(arm: ArmConfig, compare: CompareConfig) -> list[str]:
    # reading a recipe has refused all sections but [model] and [training], and names that are no dotted names
    faults, free = list[str](), marked(FREE)
    for key in arm.overrides:
        section, name, *_ = split_key(key)
        if section == "training" and name not in free:
            allowed = f"an arm may change only {', '.join(sorted(free))}"
            reason = REASONS.get(name, f"it must be the same for all arms, so set it in [training]; there {allowed}")
            faults.append(f"compare.arms {arm.name!r} overrides {key}: {reason}")
    for name, key in (("tune", RATE), ("grid", RATE), ("tune_encoding", OWN_RATE)):
        if getattr(compare, name) and key in arm.overrides:
            faults.append(
                f"compare.arms {arm.name!r} overrides {key}, which compare.{name} chooses; drop one of the two"
            )
    return faults


def _name_faults(compare: CompareConfig) -> list[str]:
    # reading a recipe has refused names that are no folder's name
    names = [arm.name for arm in compare.arms]
    # two names that differ by case only are one file on macOS and Windows
    faults = [
        f"compare.arms name {name!r} is the name of a file or folder that a comparison writes; choose another"
        for name in names
        if name.casefold() in WRITTEN
    ]
    folded = [name.casefold() for name in names]
    twice = [name for name in names if folded.count(name.casefold()) > 1]
    return faults + ([f"compare.arms names {', '.join(twice)} differ by case only or not at all"] if twice else [])


def _data_faults(recipe: Recipe, arm: Arm) -> list[str]:
    # data.length follows max_position_embeddings where it is not given, so an arm can change the data without naming it
    faults: list[str] = []
    if arm.recipe.data != recipe.data:
        faults.append(
            f"compare.arms {arm.name!r} would see other data than the recipe's: {arm.recipe.data} "
            f"instead of {recipe.data}; give data.length if the arm changes max_position_embeddings"
        )
    if not same_tokenizer(arm.recipe.tokenizer, recipe.tokenizer):
        faults.append(
            f"compare.arms {arm.name!r} would see other tokens than the recipe's: {arm.recipe.tokenizer} "
            f"instead of {recipe.tokenizer}"
        )
    return faults


def same_tokenizer(one: TokenizerConfig, other: TokenizerConfig) -> bool:
    """Tell whether two configs give the same tokeniser: saved models may hold it in different folders."""
    if one == other:
        return True
    existing = one.kind == other.kind == "existing"
    return existing and tokenizer_content(one.path) == tokenizer_content(other.path)


def _seed_faults(recipe: Recipe, compare: CompareConfig, arms: Sequence[Arm]) -> list[str]:
    """Return the faults of arms that start from saved models that are missing or have different tokenisers."""
    if recipe.pretrained is None:
        return []
    seeds = {*compare.seeds, *(compare.tune_seed if compare.tune else ())}
    faults: list[str] = []
    for arm, seed in product(arms, sorted(seeds)):
        try:
            found = arm.recipe.with_run(seed=seed)
        except BadInput as error:
            faults += [f"compare.arms {arm.name!r}, seed {seed}: {fault}" for fault in error.faults]
            continue
        if not same_tokenizer(found.tokenizer, recipe.tokenizer):
            faults.append(
                f"compare.arms {arm.name!r}, seed {seed}: the tokeniser of {found.pretrained} is not that of "
                f"{recipe.pretrained}; arms must see the same tokens"
            )
    return faults


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
