"""Find out whether two arms are one network under two names."""

from __future__ import annotations

from collections.abc import Mapping

from wordorder.comparison.quality import METRICS
from wordorder.comparison.results_file import Row
from wordorder.comparison.statistics.summary import Unit

MEASURED = ("loss", "validation_loss", "parameters", *METRICS, *(f"validation_{name}" for name in METRICS))
"""Numbers that, beside the curve, two trainings of one network with one seed agree on to the last bit; time and memory
differ."""


def are_identical(one: Mapping[Unit, Row], other: Mapping[Unit, Row]) -> bool:
    """Tell whether two arms have the same numbers on every seed (and fold) that both were trained with.

    Every score, every point of the curve and the number of parameters must agree bit by bit: an accuracy alone agrees
    by chance on a small test set. Without a common seed nothing is known, and the answer is no.

    Args:
        one: an arm's rows by fold and seed.
        other: those of the other arm.
    """
    shared = one.keys() & other.keys()
    return bool(shared) and all(_measured(one[unit]) == _measured(other[unit]) for unit in shared)


def _measured(row: Row) -> list[object]:
    return [row.curve, *(row.score(name) for name in MEASURED)]
