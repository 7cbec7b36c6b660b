"""The Pareto front of quality against one cost: the arms that are worth their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One arm with its cost and its quality; None for an unknown number."""

    name: str
    cost: float | None
    quality: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The arms that no other arm beats in both cost and quality, and for each other arm one that beats it."""

    on: tuple[str, ...]
    """Names of the arms on the front, the cheapest first; arms equal in both stand together."""
    behind: tuple[tuple[str, str], ...]
    """(arm, the best arm that is no worse in both and better in one), in the order given."""
    unknown: tuple[str, ...] = ()
    """Arms without a cost or a quality."""

    @property
    def words(self) -> str:
        """The front as sentences."""
        if not self.on:
            return "No arm has both numbers."
        text = f"On the Pareto front: {listed(self.on)}."
        if self.behind:
            text += f" Behind it: {', '.join(f'{arm} (beaten by {by})' for arm, by in self.behind)}."
        return text + (f" Not known: {listed(self.unknown)}." if self.unknown else "")


def pareto_front(points: Sequence[Point], *, more_is_better: bool, more_cost_is_better: bool = False) -> Front:
    """Return the Pareto front of some arms.

    An arm is on it unless another is at least as good and at most as dear, and better in one of the two. Two arms with
    the same cost and the same quality are both on it, or both behind it. Only the centres count: whether a difference
    is more than chance is not asked here.
    """
    signs = (-1 if more_cost_is_better else 1, -1 if more_is_better else 1)
    places = {
        point.name: (signs[0] * point.cost, signs[1] * point.quality)
        for point in points
        if point.cost is not None and point.quality is not None
    }
    beaten = {name: [other for other, there in places.items() if _beats(there, here)] for name, here in places.items()}
    on = sorted((name for name, by in beaten.items() if not by), key=places.__getitem__)
    behind = [
        (name, min((arm for arm in on if arm in by), key=lambda arm: places[arm][::-1]))
        for name, by in beaten.items()
        if by
    ]
    unknown = [point.name for point in points if point.name not in places]
    return Front(on=tuple(on), behind=tuple(behind), unknown=tuple(unknown))


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] <= other[0] and one[1] <= other[1]


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence: `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
