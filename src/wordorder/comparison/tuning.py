"""Choose the learning rates of each arm, its own and that of its encoding, in trials before the runs that count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import NamedTuple


class Rates(NamedTuple):
    """The learning rates of one trial."""

    rate: float
    """`training.learning_rate`."""
    factor: float | None = None
    """`training.encoding_learning_rate`; None leaves it as the arm has it."""

    @property
    def words(self) -> str:
        """The rates as tables and folders name them: "0.002" or "0.002 x4"."""
        return f"{self.rate:g}" if self.factor is None else f"{self.rate:g} x{self.factor:g}"


class Score(NamedTuple):
    """The validation score of one trial, of which less is better."""

    score: float
    loss: float = 0.0
    """The validation loss, which decides between equal scores: many rates may reach an accuracy of 1."""


Scores = Mapping[Rates, Mapping[int, Score | None]]
"""Rates -> tuning seed -> score; None for a trial that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The search for the rates of one arm: a grid that is halved from seed to seed, and extended at its edges.

    On the first tuning seed all rates are tried, on each further one the better half of those that are left, by the
    median over the seeds so far (successive halving, Jamieson and Talwalkar 2016, https://arxiv.org/abs/1502.07943,
    over seeds instead of steps: shorter trials would choose rates that are fast at first). Where the best rates stand
    at an edge of the grid, the next values beyond, in the ratio of the last two, are tried on all tuning seeds; at most
    `extend` times.
    """

    rates: tuple[float, ...]
    factors: tuple[float | None, ...]
    seeds: tuple[int, ...]
    extend: int = 0

    def next_trials(self, scores: Scores) -> list[tuple[Rates, int]]:
        """Return the trials (rates, seed) that come next, from the scores of those before; [] at the end."""
        left = [Rates(*pair) for pair in product(self.rates, self.factors)]

        def order(one: Rates) -> tuple[int, float, float]:
            return rank(scores.get(one, {}).values())

        for number, seed in enumerate(self.seeds):
            if missing := [(one, seed) for one in left if seed not in scores.get(one, {})]:
                return missing
            if number + 1 < len(self.seeds):
                left = sorted(left, key=order)[: math.ceil(len(left) / 2)]
        rates, factors = list(self.rates), [factor for factor in self.factors if factor is not None]
        for _ in range(self.extend):
            best = min(left, key=order)
            sides = [best.rate, *_beyond(best.rate, rates)], [best.factor, *_beyond(best.factor, factors)]
            found = [Rates(*pair) for pair in product(*sides)][1:]
            if missing := [(one, seed) for one in found for seed in self.seeds if seed not in scores.get(one, {})]:
                return missing
            left += found
            rates += [one.rate for one in found]
            factors += [one.factor for one in found if one.factor is not None]
        return []


def best_of(scores: Scores) -> Rates | None:
    """Return the best rates of those that were tried on the most seeds; None if no trial gave a score."""
    known = [one for one, seeds in scores.items() if any(value is not None for value in seeds.values())]
    return min(sorted(known), key=lambda one: rank(scores[one].values()), default=None)


def rank(scores: Iterable[Score | None]) -> tuple[int, float, float]:
    """Return the key by which rates are sorted, best first: seeds with a score, then their median, then the loss's.

    Rates that a seed could not be trained with lose against those that trained them all; those that were left out
    after the first seeds lose against those that went on.

    Args:
        scores: those of the seeds; None for a training that failed.
    """
    values = [value for value in scores if value is not None]
    if not values:
        return 0, math.inf, math.inf
    return -len(values), median(value.score for value in values), median(value.loss for value in values)


def at_edge(value: float | None, tried: Sequence[float | None]) -> bool:
    """Tell whether a value is the lowest or the highest of several that were tried."""
    known = [one for one in set(tried) if one is not None]
    return len(known) > 1 and value in (min(known), max(known))


def _beyond(value: float | None, tried: Sequence[float]) -> list[float]:
    """Return the next value beyond the edge that a value stands at, in the ratio of the last two; [] inside."""
    known = sorted(set(tried))
    if value is None or not at_edge(value, known):
        return []
    last, before = (known[0], known[1]) if value == known[0] else (known[-1], known[-2])
    return [float(f"{last * last / before:.6g}")]
