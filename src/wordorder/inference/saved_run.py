"""Read the settings of a saved model's run from the recipe.toml beside the model's folder."""

from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from wordorder.errors import BadInput
from wordorder.limits import MOST_BEAMS, one_line, read_toml
from wordorder.training.recipe.arguments import BEAMS


def data_settings(model_dir: str | Path) -> dict[str, Any]:
    """Return the values of [data] that the model was trained with; {} if no recipe lies beside its folder."""
    from wordorder.data import DataConfig
    from wordorder.data.checks import scale_faults, whole_faults

    section = _section(model_dir, "data")
    faults = [
        *whole_faults("data.length", section.get("length"), 1, optional=True),
        *scale_faults("data.label_scale", section.get("label_scale", 1.0)),
    ]
    if faults:
        raise BadInput(f"{_recipe_beside(model_dir)}: {fault}" for fault in faults)
    known = {field.name for field in fields(DataConfig)}
    values = {name: value for name, value in section.items() if name in known}
    pieces, length = _section(model_dir, "training").get("segments_per_step"), values.get("length")
    if isinstance(pieces, int) and isinstance(length, int) and pieces > 0:
        values["length"] = length // pieces  # the segments that the model read
    return {name: tuple(cast(Any, value)) if isinstance(value, list) else value for name, value in values.items()}


def search_settings(model_dir: str | Path) -> tuple[int, int | None]:
    """Return the beams of the run's search, and the maximum length of a translation or None."""
    from wordorder.data.checks import whole_faults

    training = _section(model_dir, "training")
    beams, longest = training.get("generation_num_beams", BEAMS), training.get("generation_max_length")
    faults = [
        *whole_faults("training.generation_num_beams", beams, 1, largest=MOST_BEAMS),
        *whole_faults("training.generation_max_length", longest, 2, optional=True),
    ]
    if faults:
        raise BadInput(f"{_recipe_beside(model_dir)}: {fault}" for fault in faults)
    return cast(int, beams), longest


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
