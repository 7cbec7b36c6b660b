"""Read overrides written as TOML, and write a recipe back as TOML."""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, cast

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
