"""Runs that an earlier version of the package began: what they cannot be mixed with."""

import json
from pathlib import Path
from typing import Any

from wordorder.training.recipe import Recipe


def older_version_fault(folder: Path, recipe: Recipe) -> str | None:
    """Say why a run folder cannot be gone on with because options have other defaults since it was begun; or None.

    Args:
        folder: of the run; its environment.json says which version began it.
        recipe: of the run that is to go on there.
    """
    from wordorder.encodings import names_of, split_options
    from wordorder.models import changed_defaults

    try:
        environment: Any = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
        version = str(environment["packages"]["wordorder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no run was begun here, or what is wrong is said elsewhere
    encoding: str | None = recipe.model.get("encoding")
    changed = changed_defaults(version)
    if encoding is None or not changed:
        return None
    given = split_options(encoding, recipe.model.get("encoding_options"))
    options = [
        f"{name}.{option} = {value!r}"
        for name in names_of(encoding)
        for option, value in changed.get(name, {}).items()
        if option not in given[name]
    ]
    if not options:
        return None
    return (
        f"{folder} was made by wordorder {version}, in which the default was {' and '.join(options)}; the default is"
        " another now: start anew in another folder"
    )
