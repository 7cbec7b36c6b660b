"""Checks of names, types and choices, whose faults are sentences that say what would have been right."""

import difflib
import enum
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast, get_args, get_origin


def unknown_name(where: str, name: str, valid: Iterable[str]) -> str:
    """Say that a name is not known, with the nearest valid one and all of them.

    Args:
        where: the section or list in which the name was found, such as "[data]".
        name: the name as it was written.
        valid: the names that would have been right.
    """
    known = sorted(valid)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{where}: unknown name {name!r}; {hint}valid names: {', '.join(known)}"


def unknown_choice(where: str, value: object, valid: Iterable[str]) -> str:
    """Say that a value is not one of the valid ones, with the nearest and all of them.

    Args:
        where: the dotted name whose value it is, such as "training.optim".
        value: the value as it was written.
        valid: the values that would have been right.
    """
    known = list(valid)
    near = difflib.get_close_matches(str(value), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{where}: unknown value {value!r}; {hint}valid values: {', '.join(known)}"


def describe(hint: Any) -> str:
    """Name a type hint as a person who writes TOML would."""
    simple = {int: "an integer", float: "a number", bool: "true or false", str: "a string", dict: "a table"}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "a string"
    if hint in simple:
        return simple[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(choice) for choice in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe(part) for part in arguments if part is not type(None)))
    if origin in (list, tuple):
        return f"a list, each {describe(arguments[0])}" if arguments else "a list"
    if origin is dict:
        return "a table"
    return f"{hint}"


def fits(hint: Any, value: object) -> bool:
    """Whether a value read from TOML is of the hinted type; an integer counts as a number, never as true or false."""
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
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return isinstance(value, str)
    return isinstance(hint, type) and isinstance(value, hint)


def choices(hint: Any) -> tuple[str, ...]:
    """The strings that an enumeration or a Literal within a type hint allows; empty when any string will do."""
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return tuple(str(member.value) for member in hint)
    if get_origin(hint) is Literal:
        return tuple(choice for choice in get_args(hint) if isinstance(choice, str))
    if get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(name for part in get_args(hint) for name in choices(part))
    return ()


def value_faults(where: str, hint: Any, value: object) -> list[str]:
    """The faults of one value against its type hint: none, or one sentence.

    Args:
        where: the dotted name whose value it is.
        hint: the type that it must have.
        value: what TOML gave.
    """
    allowed = choices(hint)
    if allowed and isinstance(value, str):
        return [] if value in allowed else [unknown_choice(where, value, allowed)]
    return [] if fits(hint, value) else [f"{where}: must be {describe(hint)}, got {value!r}"]


def table_faults(section: str, table: Mapping[str, object], hints: Mapping[str, Any]) -> list[str]:
    """Every fault of a table: unknown names and values of the wrong type.

    Args:
        section: the section's name, without brackets.
        table: what was read.
        hints: the valid names, each with its type hint.
    """
    faults: list[str] = []
    for name, value in table.items():
        if name in hints:
            faults += value_faults(f"{section}.{name}", hints[name], value)
        else:
            faults.append(unknown_name(f"[{section}]", name, hints))
    return faults
