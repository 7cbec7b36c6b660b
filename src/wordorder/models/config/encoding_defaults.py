"""Complete the options of encodings: [CLS] as the model's configuration has it, and defaults of earlier versions."""

import re
from collections.abc import Mapping
from typing import Any

from wordorder.encodings import CATALOG, Use, WithMemory, options_of, split_options

_BEFORE_0_2: dict[str, dict[str, Any]] = {
    "t5": {"scale": 1.0},
    "sinusoidal": {"embedding_scale": 1.0},
    "rope-yarn": {"ramp": "turns"},
}
"""Defaults before version 0.2 that have changed since, by encoding; so has that of ``cls``, see `complete_options`."""


def complete_options(
    encoding: str,
    options: Mapping[str, object] | None,
    *,
    version: str | None,
    has_cls: bool,
    use: Use = "encoder",
    with_memory: WithMemory = "none",
) -> dict[str, dict[str, Any]]:
    """Return the options of each part of an encoding, completed where they are not given.

    ``cls`` becomes "position-0" in encoders whose texts begin with [CLS]; before version 0.2 it did in all encoders.

    Args:
        encoding: a name of the catalogue, several joined by "+", or a pattern over the layers.
        options: flat for one part, ``{"name": {...}}`` for several.
        version: of the package that wrote the configuration; None = this one.
        has_cls: whether texts begin with [CLS].
        with_memory: with a memory position 0 is its oldest slot, and never [CLS].

    Raises:
        BadInput: an option is unknown, or has a value of another type.
    """
    given, old = split_options(encoding, options), changed_defaults(version)
    untie = use == "encoder" and with_memory == "none" and (has_cls or bool(old))
    found: dict[str, dict[str, Any]] = {}
    for part, own in given.items():
        cls = {"cls": "position-0"} if untie and "cls" in options_of(CATALOG[part]) else {}
        found[part] = {**cls, **old.get(part, {}), **own}
        if old and found[part].get("cls", "none") == "none":
            found[part].pop("reset", None)  # was read with [CLS] only, and is refused without by now
    return found


def changed_defaults(version: str | None) -> dict[str, dict[str, Any]]:
    """Return the options by encoding whose defaults were others in a version of this package.

    Args:
        version: such as "0.1.0"; None, or what is no version, is taken for this one.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return _BEFORE_0_2 if numbers and (int(numbers[1]), int(numbers[2])) < (0, 2) else {}
