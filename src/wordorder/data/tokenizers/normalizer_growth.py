"""Bound how much longer the steps of a tokenizer.json may make a text, before the library reads it."""

import re
import unicodedata
from typing import Any, cast

_MOST_STEPS, _MOST_GROWTH = 1000, 1024
"""Steps of a normalizer or decoder, and how many times as long they may make a text together. Known tokenisers have
some ten steps, most of which replace a text by a shorter one."""


def check_growth(tokenizer: dict[str, object]) -> None:
    """Refuse steps of a tokenizer.json that replace each letter by many, one after another, by a ValueError.

    The library would run out of memory and abort.
    """
    for part in ("normalizer", "decoder"):
        steps, growth, inserted, changed = _steps(tokenizer.get(part)), 1, "", False
        if len(steps) > _MOST_STEPS:
            raise ValueError(f"its {part} has {len(steps):,} steps, more than the {_MOST_STEPS:,} that are taken")
        for step in steps:
            pattern, content = step.get("pattern"), step.get("content")
            if step.get("type") != "Replace" or not isinstance(pattern, dict) or not isinstance(content, str):
                changed = changed or (bool(inserted) and step.get("type") not in _SIMPLER)
                continue
            fixed, regex = (cast("dict[str, object]", pattern).get(kind) for kind in ("String", "Regex"))
            if isinstance(fixed, str) and fixed:
                own = max(1, -(-len(content) // len(fixed)))
                again = changed or not _simpler(fixed).isdisjoint(_simpler(inserted))
            else:
                own, again = max(1, len(content) + _may_be_empty(regex)) if content else 1, True
            growth = growth * own if again else max(growth, own)
            inserted += content
            if growth > _MOST_GROWTH:
                raise ValueError(
                    f"its {part} may make a text more than {_MOST_GROWTH:,} times as long, by Replace steps one after "
                    "another; leave some out, or shorten their content"
                )


_SIMPLER = ("Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Strip", "BertNormalizer", "Nmt")
"""Steps after which a letter is the same for `_simpler`."""


def _simpler(text: str) -> set[str]:
    """Return the letters of a text without case, accents and kinds of white space."""
    letters = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    kinds = ((letter, unicodedata.category(letter)[0]) for letter in letters)
    return {" " if kind in "ZC" else letter for letter, kind in kinds if kind != "M"} | {
        letter for letter in text if unicodedata.category(letter)[0] == "M"
    }


_DEPENDS = re.compile(r"\(\?<?[=!~>]|[?*+]\+|\\[bBAzZGKyY]|(?<![\[\\])[\^$]")
"""Parts of a regular expression that look at the letters around, or that keep what they took: it may match nothing."""


def _may_be_empty(regex: object) -> bool:
    """Return whether a regular expression may match nothing, between two letters: its content makes texts longer."""
    from tokenizers import Regex, normalizers

    if not isinstance(regex, str) or _DEPENDS.search(regex):
        return True
    try:
        before_a_mark = Regex(rf"(?:{regex})(?=\x01)")
        return normalizers.Replace(before_a_mark, "x").normalize_str("\x01") != "\x01"
    except Exception:  # no regular expression, which is said when the tokenizer is read
        return True


def _steps(value: object) -> list[dict[str, object]]:
    """Return the steps of a normalizer or decoder in their order, those of sequences within sequences too."""
    if isinstance(value, list):
        return [step for inner in cast("list[object]", value) for step in _steps(inner)]
    if not isinstance(value, dict):
        return []
    step = cast("dict[str, Any]", value)
    own = [] if step.get("type") == "Sequence" else [step]
    return own + [inner for name in ("normalizers", "decoders") for inner in _steps(step.get(name))]
