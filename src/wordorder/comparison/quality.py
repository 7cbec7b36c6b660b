"""The headline metric of a comparison, which measures how good a trained model is."""

from collections.abc import Mapping
from dataclasses import dataclass

from wordorder.comparison.results_file import Results
from wordorder.tasks import TASKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """A metric of a trained model, such as the headline metric of a comparison."""

    metric: str
    """Key in a row of results.json."""
    name: str
    """Name of the metric for readers."""
    meaning: str
    """Explanation of the number, for captions, with `{split}` for the split's name."""
    higher_is_better: bool = False
    digits: int = 4
    """Significant digits shown if there is no spread that decides how many are meant."""


LANGUAGE = Quality(
    metric="perplexity",
    name="perplexity",
    meaning="exp of the mean loss in nats over all predicted tokens of the {split} split (lower is better)",
)
MASKED = Quality(
    metric="perplexity",
    name="masked-token perplexity",
    meaning="exp of the mean loss in nats over the masked tokens of the {split} split (lower is better)",
)
BITS = Quality(
    metric="bits_per_character",
    name="bits per character",
    meaning="mean loss in bits over all characters of the {split} split, whatever the tokens (lower is better)",
)
METRICS: dict[str, Quality] = {
    quality.metric: quality
    for quality in (
        Quality(
            metric="accuracy",
            name="accuracy",
            meaning="share of the {split} split's examples that get their right label (higher is better)",
            higher_is_better=True,
        ),
        Quality(
            metric="macro_f1",
            name="macro-F1",
            meaning="mean over the classes of F1 on the {split} split, 0 to 1 (higher is better)",
            higher_is_better=True,
        ),
        Quality(
            metric="f1",
            name="F1",
            meaning="F1 of the second class on the {split} split, 0 to 1 (higher is better)",
            higher_is_better=True,
        ),
        Quality(
            metric="matthews_correlation",
            name="Matthews correlation",
            meaning="of labels and predictions on the {split} split, -1 to 1, 0 for guessing (higher is better)",
            higher_is_better=True,
        ),
        Quality(
            metric="pearson",
            name="Pearson correlation",
            meaning="of labels and predictions on the {split} split, -1 to 1, 0 for guessing (higher is better)",
            higher_is_better=True,
        ),
        Quality(
            metric="spearmanr",
            name="Spearman correlation",
            meaning="of the ranks of labels and predictions on the {split} split, -1 to 1 (higher is better)",
            higher_is_better=True,
        ),
        Quality(
            metric="bleu",
            name="BLEU",
            meaning="corpus BLEU of the translations of the {split} split, 0 to 100 (higher is better)",
            higher_is_better=True,
        ),
        Quality(
            metric="exact_match",
            name="exact match",
            meaning="share of the {split} split's outputs that are right from beginning to end (higher is better)",
            higher_is_better=True,
        ),
        LANGUAGE,
    )
}
OF_TASK: dict[str, Quality] = {
    "masked-lm": MASKED,
    "causal-lm": LANGUAGE,
    "classification": METRICS["accuracy"],
    "regression": METRICS["pearson"],
    "translation": METRICS["bleu"],
}
"""Task -> its headline metric, if the recipe names no other by `training.metric_for_best_model`."""

BESIDE: dict[str, tuple[Quality, ...]] = {"causal-lm": (BITS,), "translation": (LANGUAGE, METRICS["bleu"])}
"""Task -> metrics that the table shows too, except the headline."""


def beside(results: Results) -> tuple[Quality, ...]:
    """Return the metrics that the table of a results file shows after its headline."""
    headline = quality_of(results).metric
    return tuple(quality for quality in BESIDE.get(results.task, ()) if quality.metric != headline)


def quality_of(results: Results) -> Quality:
    """Return the headline metric of a results file: the one it names, or else its task's, or else perplexity."""
    usual = OF_TASK.get(results.task, LANGUAGE)
    named = results.metric
    return usual if named is None or named == usual.metric else METRICS.get(named, usual)


def metric_of(task: str, training: Mapping[str, object]) -> str:
    """Return the headline metric's key for a recipe.

    Args:
        task: of the recipe's [data].
        training: the recipe's [training]; the loss, by which the best checkpoint is chosen where nothing is said, is no
            headline.
    """
    chosen = training.get("metric_for_best_model")
    return str(chosen) if chosen in METRICS else OF_TASK.get(task, LANGUAGE).metric


def loss_unit(results: Results) -> str:
    """Return the unit of the loss of a results file."""
    task = TASKS.get(results.task)
    return "nats" if task is None else task.loss_unit


def is_marked_optimistic(results: Results) -> bool:
    """Tell whether a test score also chose the checkpoint; a validation score is named as one anyway."""
    return results.optimistic and results.split == "test"


def lower_is_better(metric: str) -> bool:
    """Tell whether lower values of any metric, the loss included, are better."""
    return metric not in METRICS or not METRICS[metric].higher_is_better
