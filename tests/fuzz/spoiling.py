"""Ways to spoil a good file: hypothesis strategies that know its structure, and so get past the first check."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

WHOLE = [-1, 0, 1, 2**31, 10**12]
ODD_TEXT = [
    "", " ", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", "\x00", "\x1b[2J", "\u2028", "\ud800", "é" * 300,
    "<script>alert(1)</script>", "{{ 7 * 7 }}", "__import__('os')", "${HOME}", "%s%n", "rope", "tupe-r", "rope*999",
    "rope*9999999,none", "+", ",", "*", "nan", "1e999", "[PAD]", "F32", "I64", "cuda", "hub:pandas", "owner/kernel",
    "x" * 5000,
]  # fmt: skip
ODD_NUMBERS = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e308, 1e-320, 0.5, 1.0, *WHOLE]


scalars = st.one_of(
    st.sampled_from([None, True, False]),
    st.sampled_from(ODD_NUMBERS),
    st.sampled_from(ODD_TEXT),
    st.integers(-3, 70),
    st.text(max_size=20),
)
values = st.one_of(
    scalars,
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=8,
    ),
)
"""What may stand in the place of any value of a JSON or TOML file."""


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where values stand in nested lists and dicts; of long ones the first few and the last."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    items = items if len(items) <= 40 else [*items[:20], *items[-20:]]
    return [(*here, key) for key, _ in items] + [p for key, inner in items for p in paths(inner, (*here, key))]


@st.composite
def spoilt(draw: st.DrawFn, good: Any, most: int = 4) -> Any:
    """A nested value with some of its parts replaced, removed, doubled, renamed or moved."""
    value = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, most))):
        known = paths(value)
        if not known:
            return copy.deepcopy(draw(values))
        *way, last = draw(st.sampled_from(known))
        holder = value
        for key in way:
            holder = holder[key]
        how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename", "add", "swap"]))
        if how == "remove":
            del holder[last]
        elif how == "rename" and isinstance(holder, dict):
            holder[draw(st.text(max_size=12) | st.sampled_from(ODD_TEXT))] = holder.pop(last)
        elif how == "add" and isinstance(holder, dict):
            holder[draw(st.text(max_size=12))] = copy.deepcopy(draw(values))
        elif how == "swap":
            source = value
            for key in draw(st.sampled_from(known)):
                if isinstance(source, dict | list) and (
                    key in source if isinstance(source, dict) else key < len(source)
                ):
                    source = source[key]
            holder[last] = copy.deepcopy(source)
        else:
            holder[last] = copy.deepcopy(draw(values))  # what is drawn may be drawn again, and must not change
    return value


def as_json(value: Any) -> bytes:
    """JSON with NaN and lone surrogates, as a careless writer leaves it."""
    return json.dumps(value).encode()


@st.composite
def spoilt_json(draw: st.DrawFn, good: Any, most: int = 4) -> bytes:
    """The text of `spoilt`, sometimes spoilt as text too."""
    text = as_json(draw(spoilt(good, most)))
    return draw(spoilt_bytes(text)) if draw(st.integers(0, 9)) == 0 else text


@st.composite
def spoilt_bytes(draw: st.DrawFn, good: bytes, most: int = 4, window: int | None = None) -> bytes:
    """Bytes with some changed, cut, doubled or put in; ``window`` bounds where, for files that are mostly numbers."""
    content = bytearray(good)
    for _ in range(draw(st.integers(1, most))):
        end = min(len(content), window or len(content))
        at = draw(st.integers(0, end))
        how = draw(st.sampled_from(["set", "flip", "insert", "delete", "copy", "cut"]))
        if how == "set" and at < len(content):
            content[at] = draw(
                st.sampled_from([0, 1, 10, 34, 44, 46, 91, 93, 123, 127, 128, 255]) | st.integers(0, 255)
            )
        elif how == "flip" and at < len(content):
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "insert":
            content[at:at] = draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"\x00" * 9, b"}"]))
        elif how == "delete":
            del content[at : at + draw(st.integers(1, 16))]
        elif how == "copy":
            start = draw(st.integers(0, end))
            content[at:at] = content[start : start + draw(st.integers(1, 32))]
        elif draw(st.integers(0, 4)) == 0:
            del content[at:]
    return bytes(content)
