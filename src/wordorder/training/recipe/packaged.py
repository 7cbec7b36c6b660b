"""Find the recipes that come with the package by name."""

import difflib
from pathlib import Path

from wordorder.errors import BadInput

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
"""The folder of the package with the recipes."""

ENDING = ".toml"


def packaged_recipes() -> dict[str, Path]:
    """Return the recipes that come with the package: name, such as `demo` or `decision/n_back` -> file."""
    files = sorted(FOLDER.rglob(f"*{ENDING}"), key=lambda path: (len(path.relative_to(FOLDER).parts), path))
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in files}


def find_recipe(given: str | Path) -> Path:
    """Return the file of a recipe: an existing path, or the name of a recipe that comes with the package.

    Names are read in any letter case, with hyphens for underscores, and with the ending or without.
    `recipes/demo.toml`, as earlier versions were told, is `demo`.

    Args:
        given: what a command was told.

    Raises:
        BadInput: it is neither.
    """
    path, known = Path(given), packaged_recipes()
    if path.exists():
        return path
    name = path.as_posix().lower().replace("-", "_").removesuffix(ENDING).removeprefix("recipes/")
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
    if not near and path.suffix == ENDING:  # a path, and of no packaged recipe
        raise BadInput(f"{given}: no such file; `wordorder recipes` lists the recipes that come with the package")
    meant = f"did you mean {', '.join(near)}? " if near else ""
    raise BadInput(f"{given}: no file and no recipe of the package; {meant}`wordorder recipes` lists them")
