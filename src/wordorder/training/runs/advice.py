"""Advice on validation or test splits so small that their scores say little."""

from collections.abc import Mapping
from typing import Any

FEW = 20
"""Examples of a split below which its scores are called mostly chance."""


def few_examples(counts: Mapping[str, int]) -> str | None:
    """Return advice where validation or test have so few examples, by split, that their scores are mostly chance."""
    few = {name: n for name, n in counts.items() if name in ("validation", "test") and 0 < n < FEW}
    if not few:
        return None
    said = " and ".join(f"the {name} split has {n:,} example{'' if n == 1 else 's'}" for name, n in few.items())
    options = " and ".join(f"data.{name}_fraction" for name in few)
    return f"{said}, fewer than {FEW}: scores on so few are mostly chance; give more text, or raise {options}"


def examples_in(statistics: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of examples of validation and test in the statistics of prepared data."""
    held_out = {name: statistics.get(name, {}).get("segments") for name in ("validation", "test")}
    return {name: count for name, count in held_out.items() if count is not None}
