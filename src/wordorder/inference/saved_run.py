"""Read the settings of a saved model's run from the recipe.toml beside the model's folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from annotated_types import Ge, Gt, Le

from wordorder.errors import BadInput
from wordorder.limits import MOST_COUNT, one_line, read_toml
from wordorder.section import value_fault
from wordorder.training.recipe.training_section import BEAMS, GENERATION, TrainingSettings


def data_settings(model_dir: str | Path) -> dict[str, Any]:
    """Return the values of [data] that the model was trained with; {} if no recipe lies beside its folder.

    Args:
        model_dir: model/ or checkpoint-N/ of a run.

    Raises:
        BadInput: there is a recipe.toml, but it cannot be read, or its length or label_scale is none.
    """
    from wordorder.data import DataConfig

    section = _section(model_dir, "data")
    _check(model_dir, "data", section, length=_Length, label_scale=_Scale)
    values = {name: value for name, value in section.items() if name in DataConfig.model_fields}
    pieces, length = _section(model_dir, "training").get("segments_per_step"), values.get("length")
    if isinstance(pieces, int) and isinstance(length, int) and pieces > 0:
        values["length"] = length // pieces  # the segments that the model read
    return {name: tuple(cast(Any, value)) if isinstance(value, list) else value for name, value in values.items()}


def search_settings(model_dir: str | Path) -> tuple[int, int | None]:
    """Return the beams of the run's search, and the maximum length of a translation or None.

    Args:
        model_dir: see `data_settings`.

    Raises:
        BadInput: see `data_settings`; or these are no such numbers.
    """
    training = _section(model_dir, "training")
    beams, longest = training.get("generation_num_beams", BEAMS), training.get("generation_max_length")
    hints = {name: TrainingSettings.model_fields[name].rebuild_annotation() for name in GENERATION}
    _check(model_dir, "training", training, **hints)
    return cast(int, beams), longest


_Length, _Scale = Annotated[int, Ge(1), Le(MOST_COUNT)], Annotated[float, Gt(0)]


def _check(model_dir: str | Path, section: str, table: Mapping[str, Any], **hints: Any) -> None:
    found = (value_fault(f"{section}.{name}", hint, table[name]) for name, hint in hints.items() if name in table)
    if faults := [f"{_recipe_beside(model_dir)}: {fault}" for fault in found if fault]:
        raise BadInput(faults)


def _recipe_beside(model_dir: str | Path) -> Path:
    return Path(model_dir).resolve().parent / "recipe.toml"


def _section(model_dir: str | Path, name: str) -> dict[str, Any]:
    recipe = _recipe_beside(model_dir)
    if not recipe.exists():
        return {}
    try:
        table: Any = read_toml(recipe).get(name, {})
    except (OSError, ValueError) as error:
        raise BadInput(f"{recipe}: the recipe of the model's run cannot be read: {one_line(error)}") from None
    if not isinstance(table, dict):
        raise BadInput(f"{recipe}: {name} must be a section, [{name}], got {table!r}")
    return cast("dict[str, Any]", table)
