"""The words and the direction of a metric, and the metrics that several tasks have."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A score of a trained model, such as the one by which a comparison ranks its arms."""

    key: str
    """Name among the scores that a `Tally` gives, in recipes and in results.json; that of transformers' GLUE examples
    where they have one."""
    name: str
    """Name for readers."""
    meaning: str
    """Explanation of the number, for captions, with `{split}` for the split's name."""
    higher_is_better: bool = False
    digits: int = 4
    """Significant digits shown if there is no spread that decides how many are meant."""
    perfect: float | None = None
    """Score of a perfect model: where several tasks are averaged, it becomes 1 and 0 stays 0, and a margin of 0.01 is
    this share of it. None: it has none."""
    lowest: float = 0.0
    """Lowest score of a metric that has a perfect one: no interval goes beyond the two."""
    of_translations: bool = False
    """True if it is measured while training only with `predict_with_generate`."""


LARGEST_LOSS = 700.0
"""Loss in nats whose perplexity is the largest that is given; exp overflows above 709, and JSON has no
infinity."""


def perplexity_of(loss: float) -> float:
    """Return exp of a loss in nats, of a larger one than `LARGEST_LOSS` that of this one."""
    return math.exp(min(loss, LARGEST_LOSS))


PERPLEXITY = Metric(
    key="perplexity",
    name="perplexity",
    meaning="exp of the mean loss in nats over all predicted tokens of the {split} split (lower is better)",
)
ANSWERS = Metric(
    key="exact_match",
    name="exact match",
    meaning="share of the {split} split's answers that are right from beginning to end (higher is better)",
    higher_is_better=True,
    perfect=1.0,
)
ACCURACY = Metric(
    key="accuracy",
    name="accuracy",
    meaning="share of the {split} split's examples that get their right label (higher is better)",
    higher_is_better=True,
    perfect=1.0,
)
