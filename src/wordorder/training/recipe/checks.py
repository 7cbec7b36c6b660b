"""Check names, types and choices; each fault is a sentence that names the valid values."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from wordorder.hints import choices, describe, fits

_MOST_LISTED = 40  # transformers.TrainingArguments has some eighty names


def unknown_name(where: str, name: str, valid: Iterable[str]) -> str:
    """Return the fault of an unknown name, with the nearest valid one, and with all of them if they are few.

    Args:
        where: the section or list in which the name was found, such as "[data]".
        name: the name as it was written.
        valid: the names that would have been right.
    """
    known = sorted(valid)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near and len(known) > _MOST_LISTED:
        return f"{where}: unknown name {name!r}; did you mean {near[0]!r}?"
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{where}: unknown name {name!r}; {hint}valid names: {', '.join(known)}"


def unknown_choice(where: str, value: object, valid: Iterable[str]) -> str:
    """Return the fault of a value that is not one of the valid ones, with the nearest and all of them.

    Args:
        where: the dotted name whose value it is, such as "training.optim".
        value: the value as it was written.
        valid: the values that would have been right.
    """
    known = list(valid)
    near = difflib.get_close_matches(str(value), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{where}: unknown value {value!r}; {hint}valid values: {', '.join(known)}"


def value_faults(where: str, hint: Any, value: object) -> list[str]:
    """Check one value against its type hint; return no fault, or one sentence.

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
    """Return every fault of a table: unknown names and values of the wrong type.

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
