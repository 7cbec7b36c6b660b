"""Find a recipe, read its sections, and write them as TOML."""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any, cast

from wordorder.errors import BadInput
from wordorder.files import one_line, read_toml, write_files

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
"""The folder of the package with the recipes."""

ENDING = ".toml"

BASE = "base"
"""The one name of a recipe outside its sections: `base = "other.toml"`, relative to the recipe's own folder, or
`base = "demo"`, a recipe of the package."""


def packaged_recipes() -> dict[str, Path]:
    """Return the recipes that come with the package: name, such as `demo` -> file."""
    return {path.stem: path for path in sorted(FOLDER.glob(f"*{ENDING}"))}


def find_recipe(given: str | Path) -> Path:
    """Return the file of a recipe: an existing path, or the name of one of the package; BadInput if it is neither.

    Names are read in any letter case, with hyphens for underscores, and with the ending or without.
    """
    path, known = Path(given), packaged_recipes()
    if path.exists() and not path.is_dir():
        return path
    name = path.as_posix().lower().replace("-", "_").removesuffix(ENDING)
    if name in known:  # also beside a folder of that name, such as that of the comparison
        return known[name]
    if path.is_dir():
        raise BadInput(f"{given}: is a folder; name the recipe's TOML file")
    meant = _meant(name)
    if not meant and path.suffix == ENDING:  # a path, and of no packaged recipe
        raise BadInput(f"{given}: no such file; `wordorder list recipes` lists the recipes that come with the package")
    raise BadInput(f"{given}: no file and no recipe of the package; {meant}`wordorder list recipes` lists them")


def _meant(name: str) -> str:
    near = difflib.get_close_matches(name, packaged_recipes(), n=5, cutoff=0.5)
    return f"did you mean {', '.join(near)}? " if near else ""


def read_tables(path: Path) -> dict[str, Any]:
    """Read a recipe's sections, and lay them over those of its base if it has one.

    A value of the recipe takes the place of the base's, a table within a section (encoding_options) and the list of
    arms as a whole. A base has no base of its own. The run folder's recipe.toml holds the result, without `base`.

    Raises:
        BadInput: one of the files cannot be read or is no TOML, or `base` names no recipe that may be one.
    """
    sections = _read_toml(path)
    if BASE not in sections:
        return sections
    base_path = _base_file(path, sections.pop(BASE))
    tables = _read_toml(base_path)
    if BASE in tables:
        raise BadInput(f"{path}: base: {base_path} has a base itself; name a recipe that stands alone")
    for section, values in sections.items():
        under: Any = tables.get(section)
        both_tables = isinstance(under, dict) and isinstance(values, dict)
        tables[section] = {**cast("dict[str, Any]", under), **values} if both_tables else values
    return tables


def _base_file(path: Path, name: Any) -> Path:
    if not isinstance(name, str) or not name.strip():
        raise BadInput(f"{path}: base: must be another recipe's file, or the name of a packaged one, got {name!r}")
    base_path, recipes = path.parent / name, packaged_recipes()
    if base_path.is_file():
        return base_path
    if name in recipes:
        return recipes[name]
    raise BadInput(
        f"{path}: base: there is no file {base_path}, and no recipe of the package is called {name!r}; "
        f"{_meant(Path(name).stem.lower())}the name of a file is relative to the recipe's own folder"
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except IsADirectoryError:
        raise BadInput(f"{path}: is a folder; name the recipe's TOML file") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is not UTF-8 text, so it is no TOML file") from None
    except ValueError as error:
        if "hex value" in str(error) or "Unescaped '\\'" in str(error):
            remedy = r"; write a path with backslashes between single quotes, as in source = 'C:\texts'"
        elif path.suffix == ENDING:
            remedy = ""
        else:
            remedy = f"; if it is your data, write wordorder init --data {quote(str(path))} --task TASK"
        raise BadInput(f"{path}: is not valid TOML: {one_line(error)}{remedy}") from None


def summary_of(name: str) -> dict[str, Any]:
    """Return name, task, minutes on two cores (None where it was not timed) and description of a packaged recipe."""
    path = packaged_recipes()[name]
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
    task = read_tables(path).get("task", {}).get("name", "classification")
    return {"name": name, "task": task, "minutes": _minutes(comment), "about": lines[0].lstrip("# ")}


def _minutes(comment: str) -> int | None:
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
    base = read_toml(recipe).get(BASE)
    if base and (recipe.parent / base).is_file():  # one of the package is found from everywhere
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
            write_files(path.parent, {path.name: source.read_bytes()})
        except OSError as error:
            raise BadInput(f"{path}: cannot be written: {error.strerror}") from None
    return list(copies)


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def parse_value(text: str) -> Any:
    """Read a value of `--set` as TOML would, or as the bare string that it is: `3e-3`, `true`, `[0, 1]`, `rope`."""
    try:
        value = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    # A text with line breaks could smuggle in more keys, and a date is no value that a recipe knows: both are strings.
    known = len(value) == 1 and isinstance(value["value"], bool | int | float | str | list | dict)
    return cast(Any, value["value"]) if known else text


def split_key(text: str) -> list[str]:
    """Split a dotted key as TOML does, so that a quoted part may hold a dot; ValueError for what is no such key."""
    try:
        node: Any = tomllib.loads(f"{text} = 0")
    except ValueError as error:
        raise ValueError(f"{text[:80]!r} is not a dotted name such as training.learning_rate") from error
    parts: list[str] = []
    while isinstance(node, dict):
        table = cast(dict[str, Any], node)
        if len(table) != 1:
            raise ValueError(f"{text[:80]!r} is not a dotted name such as training.learning_rate")
        part, node = next(iter(table.items()))
        parts.append(part)
    return parts


def set_dotted(tree: dict[str, Any], dotted: str, value: Any) -> None:
    """Put a value into nested tables, making the tables that are missing; a table replaces the one that was there.

    Raises:
        ValueError: the name has no section, or leads through something that is not a table.
    """
    *path, last = split_key(dotted)
    if not path:
        raise ValueError(f"{dotted[:80]!r} names no section; write section.key, such as training.learning_rate")
    for part in path:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  # TOML may hold anything here
            raise ValueError(f"{dotted[:80]!r}: {part[:80]!r} is a value, not a table")
    tree[last] = value


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML basic string, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in cast(list[Any], value)) + "]"
    if isinstance(value, Mapping):
        table = cast(Mapping[str, Any], value)
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in table.items() if v is not None) + "}"
    raise TypeError(f"TOML has no way to write {value!r}")


def to_toml(tree: Mapping[str, Mapping[str, Any]]) -> str:
    """Write sections as TOML; a value that is None is left out, since TOML has no null.

    A table within a section is written inline, a list of them as [[section.name]].
    """
    lines: list[str] = []
    for section, table in tree.items():
        lines += ["", f"[{_key(section)}]"] if lines else [f"[{_key(section)}]"]
        lists: list[tuple[str, list[Mapping[str, Any]]]] = []
        for name, value in table.items():
            if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
                lists.append((name, cast(list[Mapping[str, Any]], value)))
            elif value is not None:
                lines.append(f"{_key(name)} = {_value(value)}")
        for name, entries in lists:
            for entry in entries:
                lines += ["", f"[[{_key(section)}.{_key(name)}]]"]
                lines += [f"{_key(k)} = {_value(v)}" for k, v in entry.items() if v is not None]
    return "\n".join(lines) + "\n"
