"""The headline metric of a comparison, which measures how good a trained model is."""

from collections.abc import Mapping

from wordorder.comparison.results_file import Results
from wordorder.tasks import TASKS, Metric, known_metrics
from wordorder.tasks.metrics import PERPLEXITY

METRICS = known_metrics()
"""Every metric that can be a headline, by its key in a row of results.json."""


def beside(results: Results) -> tuple[Metric, ...]:
    """Return the metrics that the table of a results file shows after its headline."""
    task, headline = TASKS.get(results.task), quality_of(results).key
    return () if task is None else tuple(metric for metric in task.beside if metric.key != headline)


def quality_of(results: Results) -> Metric:
    """Return the headline metric of a results file: the one it names, or else its task's, or else perplexity."""
    usual = _usual(results.task)
    return usual if results.metric == usual.key else METRICS.get(results.metric or "", usual)


def _usual(task: str) -> Metric:
    """Return the headline metric of a task where the recipe names none."""
    return TASKS[task].headline if task in TASKS else PERPLEXITY


def metric_of(task: str, training: Mapping[str, object]) -> str:
    """Return the headline metric's key for a recipe."""
    chosen = training.get("metric_for_best_model")
    return str(chosen) if chosen in METRICS else _usual(task).key


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
