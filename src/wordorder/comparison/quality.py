"""Which number says how good a trained model is, for each task."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The headline metric of a task, measured on the test split."""

    metric: str
    """Key in a row of results.json."""
    name: str
    """What a reader calls it."""
    meaning: str
    """What the number is, for captions."""
    higher_is_better: bool = False
    digits: int = 4
    """Significant digits shown where there is no spread that would say how many are meant."""


LANGUAGE = Quality(
    metric="perplexity",
    name="perplexity",
    meaning="exp of the mean loss in nats over all predicted tokens of the test split (lower is better)",
)
QUALITY: dict[str, Quality] = {
    "masked-lm": Quality(
        metric="perplexity",
        name="masked-token perplexity",
        meaning="exp of the mean loss in nats over the masked tokens of the test split (lower is better)",
    ),
    "causal-lm": LANGUAGE,
    "classification": Quality(
        metric="accuracy",
        name="accuracy",
        meaning="share of the test split's examples that get their right label (higher is better)",
        higher_is_better=True,
    ),
    "translation": Quality(
        metric="bleu", name="BLEU", meaning="corpus BLEU on the test split (higher is better)", higher_is_better=True
    ),
}


def quality_of(results: Mapping[str, Any]) -> Quality:
    """Return the headline metric of a results file; a task without an entry is judged by its perplexity."""
    return QUALITY.get(str(results.get("task")), LANGUAGE)
