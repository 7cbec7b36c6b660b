"""Sections of a recipe with strict types, and one sentence for each value that is wrong."""

import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Strict, StringConstraints, TypeAdapter, ValidationError, model_validator
from pydantic_core import ErrorDetails

from wordorder.errors import BadInput
from wordorder.files import MOST_COUNT
from wordorder.hints import MOST_HINTS, choices, describe

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
"""An integer counts as a number, nothing else is converted; docstrings of fields are their descriptions."""

_T = TypeVar("_T")
Several = Annotated[tuple[_T, ...], Strict(False)]
"""A list in a file; a tuple here."""
Text = Annotated[str, StringConstraints(pattern=r"\S")]
"""A text that is not empty."""

_MOST_LISTED = 50
_MOST_SHOWN = 200
_TECHNICAL = MOST_COUNT
"""Upper bounds from here on are said only where they are passed."""


class Section(BaseModel):
    """A section of a recipe, checked when it is made.

    Raises:
        BadInput: one line for each wrong name or value; where all of them are right, one for each that does not go
            with another.
    """

    model_config = STRICT
    section: ClassVar[str]
    """The name between brackets."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Names that others know, with what is to be said of each."""

    if not TYPE_CHECKING:

        def __init__(self, /, **values: Any) -> None:  # a recipe may say "self"
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise BadInput(section_faults(type(self), error)) from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if faults := self.faults():
            raise BadInput(faults)
        return self

    def faults(self) -> list[str]:
        """Return one line for each value that does not go with another."""
        return []

    def given(self, *names: str) -> list[str]:
        """Return those of the names whose value is not the default."""
        return [name for name in names if getattr(self, name) != type(self).model_fields[name].default]

    def having(self, **changes: object) -> Self:
        """Return a copy with other values, checked in the same way."""
        return type(self)(**(dict(self) | changes))


def section_faults(kind: type[Section], error: ValidationError) -> list[str]:
    faults: dict[str, tuple[str, ...]] = {}
    for found in error.errors(include_url=False):
        name, *deeper = map(str, found["loc"]) if found["loc"] else [""]
        where, cause = f"{kind.section}.{name}", found.get("ctx", {}).get("error")
        if isinstance(cause, BadInput):
            fault = cause.faults
        elif name in kind.refused:
            fault = (f"{where}: {kind.refused[name]}",)
        elif found["type"] == "too_short" and found.get("ctx", {}).get("actual_length", 0) < len(found["input"]):
            continue  # wrong items do not count, and have lines of their own
        elif found["type"] == "extra_forbidden":
            fault = (unknown_name(f"[{kind.section}]", name, kind.model_fields, hint=len(faults) < MOST_HINTS),)
        elif found["type"] == "missing":
            fault = (f"[{kind.section}]: {name} is missing; give it here or by --set {where}=...",)
        else:
            hint = kind.model_fields[name].rebuild_annotation()
            where, hint = _inner(where, hint, deeper)
            fault = (_sentence(where, hint, found),)
        faults.setdefault(where, fault)  # a union has one error for each of its types
    return [line for fault in faults.values() for line in fault]


def _inner(where: str, hint: Any, keys: list[str]) -> tuple[str, Any]:
    if not keys:
        return where, hint
    if get_origin(hint) is Annotated:
        return _inner(where, get_args(hint)[0], keys)
    parts = [part for part in get_args(hint) if part is not type(None)]
    if get_origin(hint) in (typing.Union, types.UnionType):
        return _inner(where, parts[0], keys) if len(parts) == 1 else (where, hint)
    if not parts:
        return where, hint
    in_list = get_origin(hint) in (list, tuple)
    return _inner(f"{where}[{keys[0]}]" if in_list else f"{where}.{keys[0]}", parts[0 if in_list else -1], keys[1:])


def value_fault(where: str, hint: Any, value: object) -> str | None:
    try:
        _adapter(hint).validate_python(value)
    except ValidationError as error:
        return _sentence(where, hint, error.errors(include_url=False)[0])
    return None


def unknown_name(where: str, name: str, valid: Iterable[str], *, hint: bool = True) -> str:
    """Return the fault of an unknown name, with the nearest valid one, and with all of them if they are few.

    Without a `hint` the name alone: the nearest one of many takes a millisecond to find.
    """
    if not hint:
        return f"{where}: unknown name {name!r}"
    known = sorted(valid)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near and len(known) > _MOST_LISTED:
        return f"{where}: unknown name {name!r}; did you mean {near[0]!r}?"
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{where}: unknown name {name!r}; {meant}valid names: {', '.join(known)}"


def unknown_choice(where: str, value: object, valid: Iterable[str]) -> str:
    """Return the fault of a value that is none of the valid ones, with the nearest and with all of them."""
    known = list(valid)
    near = difflib.get_close_matches(str(value), known, n=1, cutoff=0.6)
    near = near or [name for name in known if _abbreviates(str(value), name)][:1]
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{where}: unknown value {_shown(value)}; {hint}valid values: {', '.join(known)}"


def _abbreviates(short: str, name: str) -> bool:
    """Tell whether a word has the first letter of each part of a name, and all its letters in their order: mlm."""
    letters = iter(name)
    begins = short[:1] == name[:1] and all(part[0] in short[1:] for part in name.split("-")[1:])
    return len(short) > 1 and begins and all(letter in letters for letter in short.lower())


_BOUNDS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
_SHAPES = {
    "string_pattern_mismatch": "a string that is not empty",
    "too_short": "a list that is not empty",
}


def _sentence(where: str, hint: object, found: ErrorDetails) -> str:
    value, context = found["input"], found.get("ctx", {})
    if any(name in context for name in _BOUNDS):
        bounds = [(name, limit) for name, limit in _bounds(hint) if limit < _TECHNICAL or name in context]
        expected = " and ".join(f"{_BOUNDS[name]} {limit:,}" for name, limit in bounds)
    elif found["type"] == "literal_error" and isinstance(value, str):
        return unknown_choice(where, value, choices(hint))
    elif found["type"] == "value_error":
        expected = str(context["error"])
    else:
        expected = _SHAPES.get(found["type"]) or describe(hint)
        if expected.startswith("a number") and isinstance(value, int | float) and not isinstance(value, bool):
            expected = expected.replace("a number", "a finite number", 1)  # infinite, or beyond all floats
    return f"{where}: must be {expected}, got {_shown(value)}"


def _bounds(hint: object) -> list[tuple[str, float]]:
    metadata = getattr(hint, "__metadata__", ())
    own = [(name, getattr(part, name)) for part in metadata for name in _BOUNDS if hasattr(part, name)]
    return [bound for part in get_args(hint) for bound in _bounds(part)] + own


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > _MOST_SHOWN:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=ConfigDict(strict=True, allow_inf_nan=False))
