"""Checks of `[data]` and `[tokenizer]`: each returns the faults of some values, one line a fault."""

# The values come from TOML, so the annotations of the sections promise nothing: each check takes any object.
from typing import cast

from wordorder.limits import MOST_COUNT


def text_faults(name: str, value: object, *, optional: bool = False) -> list[str]:
    if (optional and value is None) or (isinstance(value, str) and value.strip()):
        return []
    return [f"{name} must be a text that is not empty, got {value!r}"]


def choice_faults(name: str, value: object, known: tuple[str, ...]) -> list[str]:
    return [] if value in known else [f"{name} must be one of {', '.join(known)}, got {value!r}"]


def whole_faults(
    name: str, value: object, smallest: int, *, largest: int = MOST_COUNT, optional: bool = False
) -> list[str]:
    if (optional and value is None) or (type(value) is int and smallest <= value <= largest):
        return []
    if type(value) is int and value > largest:
        return [f"{name} must be at most {largest:,}, got {value!r}"]
    return [f"{name} must be a whole number of at least {smallest}, got {value!r}"]


def flag_faults(name: str, value: object) -> list[str]:
    return [] if type(value) is bool else [f"{name} must be true or false, got {value!r}"]


def fraction_faults(name: str, value: object, largest: float) -> list[str]:
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < largest:
        return []
    return [f"{name} must be a number above 0 and below {largest:g}, got {value!r}"]


def scale_faults(name: str, value: object) -> list[str]:
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < float("inf"):
        return []
    return [f"{name} must be a number above 0, got {value!r}"]


def column_faults(name: str, value: object) -> list[str]:
    if value is None:
        return []
    names = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    if names and all(isinstance(column, str) and column for column in names) and len(set(names)) == len(names):
        return []
    return [f"{name} must be a list of different names, got {value!r}"]
