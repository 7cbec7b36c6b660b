"""What a saved model's run says about its data: the recipe.toml beside the model's folder."""

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from wordorder.errors import BadInput


def data_settings(model_dir: str | Path) -> dict[str, Any]:
    """The values of [data] that the model was trained with; none where no recipe lies beside its folder.

    Args:
        model_dir: model/ or checkpoint-N/ of a run.

    Raises:
        BadInput: there is a recipe.toml, but it cannot be read.
    """
    from wordorder.data import DataConfig

    recipe = Path(model_dir).resolve().parent / "recipe.toml"
    if not recipe.exists():
        return {}
    try:
        table: Any = tomllib.loads(recipe.read_text(encoding="utf-8")).get("data", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{recipe}: the recipe of the model's run cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise BadInput(f"{recipe}: data must be a section, [data], got {table!r}")
    known = {field.name for field in fields(DataConfig)}
    values = {name: value for name, value in cast("dict[str, Any]", table).items() if name in known}
    return {name: tuple(cast(Any, value)) if isinstance(value, list) else value for name, value in values.items()}
