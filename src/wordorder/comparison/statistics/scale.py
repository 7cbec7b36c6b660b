"""The scale on which the difference of two arms is measured, and the score of each seed or fold on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from wordorder.comparison.quality import quality_of
from wordorder.comparison.results_file import Results, Row
from wordorder.comparison.statistics.summary import Unit, confidence_of
from wordorder.tasks import Metric

Rows = Mapping[Unit, Row]
EQUIVALENCE = 0.01
"""Margin of equivalence where the recipe names none: 1% of a perplexity, 0.01 of an accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The scale on which a difference is measured; greater than 0 means that the arm is better."""

    quality: Metric
    median: bool
    confidence: float
    equivalence: float
    paired: bool
    """Whether runs of one seed, or fold, are pairs."""

    @property
    def logarithmic(self) -> bool:
        """True for perplexities: they are the exp of a loss, so seeds multiply them, and "x times lower" is said."""
        return self.quality.key == "perplexity"

    @property
    def level(self) -> float:
        """The level of claims."""
        return round(1 - self.confidence, 12)  # 1 - 0.95 is a little more than 0.05

    @property
    def margin(self) -> float:
        """The largest difference that counts as none: `equivalence` as a ratio, or as a share of the largest value."""
        return math.log1p(self.equivalence) if self.logarithmic else self.equivalence * (self.quality.perfect or 1.0)

    def value(self, row: Row) -> float | None:
        """Return the headline metric of a run; None if it is not a number."""
        value = row.score(self.quality.key)
        if value is None or not math.isfinite(value) or (self.logarithmic and value <= 0):
            return None
        return float(value)

    def goodness(self, value: float) -> float:
        """Return a value on the scale."""
        scaled = math.log(value) if self.logarithmic else value
        return scaled if self.quality.higher_is_better else -scaled

    def scores(self, rows: Rows) -> dict[int | str, float]:
        """Return the score of each seed or, where there are folds, of each fold: the mean of its seeds."""
        values: dict[int | str, list[float]] = {}
        for (fold, seed), row in rows.items():
            value = self.value(row)
            if value is not None:
                values.setdefault(f"fold {fold}" if fold is not None else seed, []).append(value)
        return {unit: self.goodness(fmean(own)) for unit, own in values.items()}


def scale_of(results: Results) -> Scale:
    """Return the scale of a results file."""
    given = results.compare.equivalence
    return Scale(
        quality=quality_of(results),
        median=results.statistic == "median",
        confidence=confidence_of(results),
        equivalence=EQUIVALENCE if given is None else given,
        paired=results.compare.pairing != "none",
    )
