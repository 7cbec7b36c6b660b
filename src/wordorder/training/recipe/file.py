"""Read the tables of a recipe's file, and lay them over those of its base recipe."""

from pathlib import Path
from typing import Any, cast

from wordorder.errors import BadInput
from wordorder.limits import one_line, read_toml

BASE = "base"
"""The one name of a recipe outside its sections: `base = "other.toml"`, relative to the recipe's own folder."""


def read_tables(path: Path) -> dict[str, Any]:
    """Read a recipe's sections, and lay them over those of its base if it has one.

    Each value that the recipe gives takes the place of the base's value of that name; a table within a section
    (encoding_options) and the list of arms are such values, taken whole. What the recipe leaves out stays as in the
    base, so that several data sets share arms which are written once. A base has no base of its own: two files say
    everything. The run folder's recipe.toml holds the result, without `base`.

    Args:
        path: the TOML file.

    Raises:
        BadInput: one of the files cannot be read or is no TOML, or `base` names no file that may be one.
    """
    own = _read(path)
    if BASE not in own:
        return own
    name = own.pop(BASE)
    if not isinstance(name, str) or not name.strip():
        raise BadInput(f"{path}: base: must be the name of another recipe's file, got {name!r}")
    base_path = path.parent / name
    if not base_path.is_file():
        raise BadInput(f"{path}: base: there is no file {base_path}; the name is relative to the recipe's own folder")
    tables = _read(base_path)
    if BASE in tables:
        raise BadInput(f"{path}: base: {base_path} has a base itself; name a recipe that stands alone")
    for section, values in own.items():
        under: Any = tables.get(section)
        both_tables = isinstance(under, dict) and isinstance(values, dict)
        tables[section] = {**cast("dict[str, Any]", under), **values} if both_tables else values
    return tables


def _read(path: Path) -> dict[str, Any]:
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
        raise BadInput(f"{path}: is not valid TOML: {one_line(error)}") from None
