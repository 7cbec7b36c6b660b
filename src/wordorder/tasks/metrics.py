"""Names of all metrics, and which task has which; the names are those of transformers' GLUE examples."""

from wordorder.tasks.catalog import TASKS

NAMES = tuple(dict.fromkeys(name for task in TASKS.values() for name in task.metrics))
"""Names of the metrics of all tasks, each once."""


def metric_fault(metric: str, task: str) -> str | None:
    """Return the reason why a run cannot choose its best checkpoint by a metric, or None where it can.

    Args:
        metric: as the recipe names it.
        task: a name of `TASKS`.
    """
    if metric not in NAMES or metric in TASKS[task].metrics:
        return None  # an unknown name is reported with the other names of [training]
    others = ", ".join(name for name, other in TASKS.items() if metric in other.metrics)
    return (
        f"training.metric_for_best_model: task {task} has no {metric} (task {others} has); "
        f"valid: {', '.join(TASKS[task].metrics)}"
    )
