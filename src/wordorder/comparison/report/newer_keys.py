"""Read keys that older results files lack as empty, so that older files stay readable."""

from collections.abc import Mapping, Sequence
from typing import Any


def entries_of(holder: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    """Return a list of objects, such as results["comparisons"]; empty where the key is missing or null."""
    return holder.get(key) or ()


def mapping_of(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object, such as results["budget"]; empty where the key is missing or null."""
    return holder.get(key) or {}
