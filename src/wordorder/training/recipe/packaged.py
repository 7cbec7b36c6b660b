"""Find the recipes that come with the package by name."""

import difflib
import re
from pathlib import Path
from typing import Any

from wordorder.errors import BadInput
from wordorder.limits import read_toml
from wordorder.training.recipe.recipe import BASE, read_tables

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
"""The folder of the package with the recipes."""

ENDING = ".toml"


def packaged_recipes() -> dict[str, Path]:
    """Return the recipes that come with the package: name, such as `demo` or `decision/n_back` -> file."""
    files = sorted(FOLDER.rglob(f"*{ENDING}"), key=lambda path: (len(path.relative_to(FOLDER).parts), path))
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in files}


def find_recipe(given: str | Path) -> Path:
    """Return the file of a recipe: an existing path, or the name of one of the package; BadInput if it is neither.

    Names are read in any letter case, with hyphens for underscores, and with the ending or without.
    `recipes/demo.toml`, as earlier versions were told, is `demo`.
    """
    path, known = Path(given), packaged_recipes()
    if path.exists() and not path.is_dir():
        return path
    name = path.as_posix().lower().replace("-", "_").removesuffix(ENDING).removeprefix("recipes/")
    if name in known:  # also beside a folder of that name, such as that of the comparison
        return known[name]
    if path.is_dir():
        raise BadInput(f"{given}: is a folder; name the recipe's TOML file")
    near = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
    if not near and path.suffix == ENDING:  # a path, and of no packaged recipe
        raise BadInput(f"{given}: no such file; `wordorder recipes` lists the recipes that come with the package")
    meant = f"did you mean {', '.join(near)}? " if near else ""
    raise BadInput(f"{given}: no file and no recipe of the package; {meant}`wordorder recipes` lists them")


def summary_of(name: str) -> dict[str, Any]:
    """Return name, task, minutes on two cores (None where it was not timed) and description of a packaged recipe."""
    path = packaged_recipes()[name]
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
    task = read_tables(path).get("data", {}).get("task", "classification")
    return {"name": name, "task": task, "minutes": _minutes(comment), "about": lines[0].lstrip("# ")}


def _minutes(comment: str) -> int | None:
    """Return the time on two cores that the comment of a recipe states, in whole minutes."""
    timed = re.search(r"wo cores[^.:]*: (?:(\d+) hours?)?(?:(\d+) minutes?)? ?(?:(\d+) seconds?)?", comment)
    hours, minutes, seconds = (int(part or 0) for part in timed.groups()) if timed else (0, 0, 0)
    return max(1, round(60 * hours + minutes + seconds / 60)) if hours or minutes or seconds else None


def copy_recipe(recipe: Path, target: Path | None) -> list[Path]:
    """Copy a recipe, and beside it the one that it names as its base; no file is ever replaced.

    Without a target it gets the recipe's name in the working directory.

    Returns:
        The files that were written, the recipe first. A base that is there already, with the same text, is none.

    Raises:
        BadInput: a file is in the way, or cannot be written.
    """
    target = target or Path(recipe.name)
    if target.suffix != ENDING:
        raise BadInput(f"{target}: a recipe's name ends in {ENDING}; write {target}{ENDING}")
    copies = {target: recipe}
    if base := read_toml(recipe).get(BASE):
        beside = target.parent / base
        if beside == target:
            raise BadInput(f"{target}: is the name of the recipe's base, which is copied beside it; choose another")
        if not (beside.is_file() and beside.read_bytes() == (recipe.parent / base).read_bytes()):
            copies[beside] = recipe.parent / base
    if there := [str(path) for path in copies if path.exists()]:
        raise BadInput([f"{path}: exists and is not replaced; name another file" for path in there])
    for path, source in copies.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.read_bytes())
        except OSError as error:
            raise BadInput(f"{path}: cannot be written: {error.strerror}") from None
    return list(copies)
