"""The headline metric of a comparison, which measures how good a trained model is."""

from collections.abc import Mapping

from wordorder.comparison.results_file import Results
from wordorder.data.settings import generated_task
from wordorder.tasks import TASKS, Metric, known_metrics
from wordorder.tasks.metrics import PERPLEXITY

METRICS = known_metrics()
"""Every metric that can be a headline, by its key in a row of results.json."""


def beside(results: Results) -> tuple[Metric, ...]:
    """Return the metrics that the table of a results file shows after its headline."""
    task, headline = TASKS.get(results.task), quality_of(results).key
    if task is None:
        return ()
    of_answers = _is_generated(results) and task.answer_metrics
    shown = (*task.metrics, PERPLEXITY) if of_answers else task.beside
    return tuple(metric for metric in shown if metric.key != headline)


def quality_of(results: Results) -> Metric:
    """Return the headline metric of a results file: the one it names, or else its task's, or else perplexity."""
    usual = _usual(results.task, generated=_is_generated(results))
    return usual if results.metric == usual.key else METRICS.get(results.metric or "", usual)


def _is_generated(results: Results) -> bool:
    return generated_task(str(results.recipe.data.get("source"))) is not None


def _usual(task: str, *, generated: bool) -> Metric:
    return TASKS[task].headline_of(generated) if task in TASKS else PERPLEXITY


def metric_of(task: str, training: Mapping[str, object], *, generated: bool = False) -> str:
    """Return the headline metric's key for a recipe, whose source may be a generated task."""
    chosen = training.get("metric_for_best_model")
    return str(chosen) if chosen in METRICS else _usual(task, generated=generated).key


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
