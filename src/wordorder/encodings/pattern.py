"""Names of encodings, joined by "+", "," and "*", with windows after "@": what stands in each layer of a network."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from wordorder.encodings.catalog import CATALOG
from wordorder.errors import BadInput
from wordorder.registry import without_label

_MOST_IN_A_ROW = 999
"""The largest number after "*", so that a typing error does not fill the memory with names."""

_LABEL = re.compile(r"[A-Za-z0-9_]+")

_LONGEST_WINDOW = 10**9 - 1
"""The largest number after "@", in tokens."""


@dataclass(frozen=True)
class LayerKind:
    """The encodings and the window that a pattern gives to one layer."""

    names: tuple[str, ...]
    """Names of the encodings that act together."""
    window: int | None = None
    """Tokens that a query sees on a visible side, itself included; None = all."""


def pattern_of(name: str, *, reserved: Collection[str] = ()) -> tuple[LayerKind, ...]:
    """Read a pattern: ``layer ("," layer)*``, where a layer is ``part ("+" part)* ["@" window] ["*" count]``.

    "rope@512*5,none" are five layers whose queries see 512 tokens, themselves included, then one that sees all. A part
    is a name, and may have a label: "rope:near@512*5,rope:far" are two RoPEs, each with options of its own.

    Args:
        reserved: names that stand beside those of the catalogue.

    Raises:
        BadInput: a name is not in the catalogue (the known ones are listed), or occurs twice in a layer; or "@" or "*"
            is not followed by a number, or stands elsewhere than at the end of a layer.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(f"encoding must be a name, got {name!r}; register_encoding gives your class one")
    kinds: list[LayerKind] = []
    for text in name.split(","):
        rest, star, count = text.partition("*")
        if star and not (count.strip().isdecimal() and 0 < int(count.strip()[:4]) <= _MOST_IN_A_ROW):
            most = f"1 .. {_MOST_IN_A_ROW}"
            raise BadInput(f"encoding {name!r}: after '*' comes how many layers in a row, {most}, got {count!r}")
        parts, at, size = (piece.strip() for piece in rest.partition("@"))
        if at and not (size.isdecimal() and 0 < int(size[:10]) <= _LONGEST_WINDOW):
            raise BadInput(
                f"encoding {name!r}: after '@' comes the window of a layer in tokens, at least 1, at the layer's"
                f" end ('rope+t5@512*3'), got {size!r}; without '@' a layer sees all"
            )
        kind = LayerKind(_names_of_layer(parts, name, reserved), int(size) if at else None)
        kinds += [kind] * (int(count) if star else 1)
    return tuple(kinds)


def canonical_name(name: str) -> str:
    """Return a name with each part as the catalogue spells it: "rope+tupe-a" for "RoPE+TUPE_A".

    Parts that are unknown stay as they are; `pattern_of` refuses them.
    """
    return re.sub(r"[^+,*@\s]+", lambda part: known_spelling(part[0]), name)


def known_spelling(part: str) -> str:
    """Return the name of the catalogue that differs from a part in letter case or in "_" for "-" only, or the part."""
    if part in CATALOG:
        return part
    name, colon, label = part.partition(":")
    written = name.lower().replace("_", "-")
    return next((known for known in CATALOG if known.lower().replace("_", "-") == written), name) + colon + label


def names_in(name: str) -> list[str]:
    """Return the names in a pattern as the catalogue spells them, those that it does not know too; and its numbers."""
    return [without_label(part) for part in re.split(r"[+,*@\s]+", canonical_name(name))]


def names_of(name: str) -> tuple[str, ...]:
    """Return the parts in "a+b" or "a,b", each once, with their labels; raise what `pattern_of` raises."""
    return tuple(dict.fromkeys(part for kind in pattern_of(name) for part in kind.names))


def _names_of_layer(text: str, whole: str, reserved: Collection[str]) -> tuple[str, ...]:
    names = tuple(known_spelling(part.strip()) for part in text.split("+"))
    for part in names:
        if part not in CATALOG and part not in reserved:
            from wordorder.encodings.synonyms import unknown_encoding

            raise unknown_encoding(part, [*CATALOG, *reserved])
        if ":" in part and not _LABEL.fullmatch(part.partition(":")[2]):
            raise BadInput(f"encoding {whole!r}: after ':' comes a label of letters, digits and '_', got {part!r}")
    if len(set(names)) < len(names):
        raise BadInput(f"encoding {whole!r} names a part twice")
    return names
