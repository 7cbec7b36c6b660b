"""What a saved model's run says about its data and its translations: the recipe.toml beside the model's folder."""

from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from wordorder.errors import BadInput
from wordorder.limits import one_line, read_toml
from wordorder.training.arguments import BEAMS


def data_settings(model_dir: str | Path) -> dict[str, Any]:
    """The values of [data] that the model was trained with; none where no recipe lies beside its folder.

    Args:
        model_dir: model/ or checkpoint-N/ of a run.

    Raises:
        BadInput: there is a recipe.toml, but it cannot be read.
    """
    from wordorder.data import DataConfig

    known = {field.name for field in fields(DataConfig)}
    values = {name: value for name, value in _section(model_dir, "data").items() if name in known}
    pieces, length = _section(model_dir, "training").get("segments_per_step"), values.get("length")
    if isinstance(pieces, int) and isinstance(length, int) and pieces > 0:
        values["length"] = length // pieces  # the segments that the model read
    return {name: tuple(cast(Any, value)) if isinstance(value, list) else value for name, value in values.items()}


def search_settings(model_dir: str | Path) -> tuple[int, int | None]:
    """How the model's run looked for translations: beams, and most tokens of one where its recipe says so.

    Args:
        model_dir: see `data_settings`.

    Raises:
        BadInput: see `data_settings`.
    """
    training = _section(model_dir, "training")
    return int(training.get("generation_num_beams") or BEAMS), training.get("generation_max_length")


def _section(model_dir: str | Path, name: str) -> dict[str, Any]:
    recipe = Path(model_dir).resolve().parent / "recipe.toml"
    if not recipe.exists():
        return {}
    try:
        table: Any = read_toml(recipe).get(name, {})
    except (OSError, ValueError) as error:
        raise BadInput(f"{recipe}: the recipe of the model's run cannot be read: {one_line(error)}") from None
    if not isinstance(table, dict):
        raise BadInput(f"{recipe}: {name} must be a section, [{name}], got {table!r}")
    return cast("dict[str, Any]", table)
