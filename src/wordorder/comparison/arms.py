"""From a recipe with a [compare] section to one resolved recipe per arm, or to the reasons why it would be unfair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wordorder.errors import BadInput

if TYPE_CHECKING:
    from wordorder.training import CompareConfig, Recipe

SAME_FOR_EVERY_ARM = {
    "data": "the arms would see different data",
    "tokenizer": "the arms would see different tokens",
    "compare": "an arm cannot change the comparison it is part of",
    "training.seed": "the seeds are listed in compare.seeds",
    "training.data_seed": "the arms would see different batches",
    "training.output_dir": "every run has its own folder under the comparison's",
    "training.per_device_train_batch_size": "the arms would see different batches",
    "training.gradient_accumulation_steps": "the arms would see different batches",
    "training.max_steps": "the arms would see different amounts of data",
    "training.num_train_epochs": "the arms would see different amounts of data",
}
"""Dotted names (with all that lies below them) that an arm may not override, and why."""

RATE = "training.learning_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One column of the comparison: the shared recipe with this arm's overrides applied."""

    name: str
    recipe: Recipe


def resolve_arms(recipe: Recipe) -> tuple[Arm, ...]:
    """Apply each arm's overrides to the recipe.

    Raises:
        BadInput: no [compare] section, no arm or seed, a name that cannot be a folder, an override that would make the
            batches differ, or one that the recipe's own checks refuse; one line per fault, of all arms together.
    """
    if recipe.compare is None:
        raise BadInput("the recipe has no [compare] section; add compare.seeds and one [[compare.arms]] per encoding")
    compare = recipe.compare
    faults = _name_faults(compare)
    arms: list[Arm] = []
    for arm in compare.arms:
        unfair = [
            f"compare.arms {arm.name!r} overrides {key}: {reason}"
            for key in arm.overrides
            for name, reason in SAME_FOR_EVERY_ARM.items()
            if key == name or key.startswith(f"{name}.")
        ]
        if compare.tune and RATE in arm.overrides:
            unfair.append(
                f"compare.arms {arm.name!r} overrides {RATE}, which compare.tune chooses; drop one of the two"
            )
        faults += unfair
        if unfair:
            continue
        try:
            resolved = Arm(name=arm.name, recipe=recipe.for_arm(arm))
        except BadInput as error:
            faults += [f"compare.arms {arm.name!r}: {fault}" for fault in error.faults]
            continue
        faults += _data_faults(recipe, resolved)
        arms.append(resolved)
    if faults:
        raise BadInput(faults)
    return tuple(arms)


def _name_faults(compare: CompareConfig) -> list[str]:
    # reading a recipe has refused names that are no folder's name
    names = [arm.name for arm in compare.arms]
    faults = [f"compare.arms name {name!r} is the name of the folder of figures" for name in names if name == "figures"]
    # two names that differ by case only are one folder on macOS and Windows
    folded = [name.casefold() for name in names]
    twice = [name for name in names if folded.count(name.casefold()) > 1]
    return faults + ([f"compare.arms names {', '.join(twice)} differ by case only or not at all"] if twice else [])


def _data_faults(recipe: Recipe, arm: Arm) -> list[str]:
    # data.length follows max_position_embeddings where it is not given, so an arm can change the data without naming it
    if (arm.recipe.data, arm.recipe.tokenizer) == (recipe.data, recipe.tokenizer):
        return []
    return [
        f"compare.arms {arm.name!r} would see other data than the recipe's: {arm.recipe.data} "
        f"instead of {recipe.data}; give data.length if the arm changes max_position_embeddings"
    ]
