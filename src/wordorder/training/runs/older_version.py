"""Check whether a run of an earlier version of the package can be resumed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wordorder.errors import BadInput
from wordorder.limits import read_json
from wordorder.training.recipe.recipe import Recipe


def older_version_fault(folder: Path, recipe: Recipe) -> str | None:
    """Return the reason why a run folder of an older version cannot be resumed (other defaults), or None.

    Args:
        folder: of the run; its environment.json says which version began it.
        recipe: of the run that is to go on there.
    """
    try:
        version = str(read_json(folder / "environment.json")["packages"]["wordorder"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # no run was begun here, or what is wrong is said elsewhere
    if recipe.pretrained is not None:
        return None  # a model that was saved before keeps its defaults
    model = {"network": recipe.network, **recipe.model}
    options = _changed_options(model, version, None, has_cls=recipe.tokenizer.add_special_tokens)
    if not options:
        return None
    return (
        f"{folder} was made by wordorder {version}, in which the default was {' and '.join(options)}; the default is"
        " another now: start anew in another folder"
    )


def _changed_options(
    model: Mapping[str, Any], version: str | None, other: str | None, *, has_cls: bool = True
) -> list[str]:
    """Return the options of the encoding that nobody set and whose defaults differ between two versions.

    Args:
        model: the section [model] of a resolved recipe.
        version: of the package.
        other: of the package; None = this one.
        has_cls: whether the tokenizer adds [CLS].

    Returns:
        `name.option = value`, of the first version.
    """
    from wordorder.models import complete_options

    encoding: str | None = model.get("encoding")
    if encoding is None:
        return []
    use, memory = "decoder" if model.get("network") == "decoder" else "encoder", model.get("memory", "none")
    given = model.get("encoding_options")
    try:
        meant = [
            complete_options(encoding, given, version=each, has_cls=has_cls, use=use, with_memory=memory)
            for each in (version, other)
        ]
    except BadInput:  # a user's own encoding that is not registered here; it had no other defaults
        return []
    return [
        f"{name}.{option} = {value!r}"
        for name, options in meant[0].items()
        for option, value in options.items()
        if meant[1][name].get(option) != value
    ]
