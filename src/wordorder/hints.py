"""Check values that people write against the type hints of the options and fields that receive them."""

import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast, get_args, get_origin

MOST_HINTS = 50
"""Unknown names of one section that have a hint each; more lines than these nobody reads."""


def describe(hint: object) -> str:
    """Name a type hint as a person who writes TOML would."""
    simple = {int: "an integer", float: "a number", bool: "true or false", str: "a string", dict: "a table"}
    if isinstance(hint, type) and hint in simple:
        return simple[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return describe(arguments[0])
    if origin is Literal:
        return "one of " + ", ".join(repr(choice) for choice in arguments)
    if origin in (typing.Union, types.UnionType):
        parts = dict.fromkeys(describe(part) for part in arguments if part is not type(None))
        if "a number" in parts:
            parts.pop("an integer", None)
        return " or ".join(parts)
    if origin in (list, tuple):
        return f"a list, each {describe(arguments[0])}" if arguments else "a list"
    return "a table" if origin in (dict, Mapping) or hasattr(hint, "model_fields") else f"{hint}"


def fits(hint: Any, value: object) -> bool:
    """Return whether a value read from TOML is of the hinted type; an integer counts as a number, never as a bool."""
    if hint is Any:
        return True
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in arguments)
    if origin in (typing.Union, types.UnionType):
        return any(fits(part, value) for part in arguments)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (list, tuple) or origin in (list, tuple):
        items = cast(list[object], value) if isinstance(value, list | tuple) else None
        return items is not None and (not arguments or all(fits(arguments[0], item) for item in items))
    if origin is dict:
        return isinstance(value, dict)
    return isinstance(hint, type) and isinstance(value, hint)


def option_faults(table: str, owner: str, given: Mapping[str, object], hints: Mapping[str, object]) -> list[str]:
    """Return one line per option of a table that its owner does not have, or that is of the wrong type."""
    faults: list[str] = []
    for name, value in given.items():
        if name not in hints:
            faults.append(f"{table}: {owner} has no option {name!r}; known: {', '.join(hints) or 'none'}")
        elif not fits(hints[name], value):
            faults.append(f"{table}: {owner}.{name} must be {describe(hints[name])}, got {value!r}")
    return faults


def choices(hint: object) -> tuple[str, ...]:
    """Return the strings that a Literal within a type hint allows; empty when any string will do."""
    if get_origin(hint) is Literal:
        return tuple(choice for choice in get_args(hint) if isinstance(choice, str))
    if get_origin(hint) in (Annotated, typing.Union, types.UnionType):
        return tuple(name for part in get_args(hint) for name in choices(part))
    return ()
