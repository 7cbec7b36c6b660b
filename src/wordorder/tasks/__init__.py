"""The tasks that models are trained for, one file each; code elsewhere asks the task, never its name."""

from wordorder.tasks.catalog import TASKS, check_data, known_metrics, metric_fault, metric_names, model_class, tasks_of
from wordorder.tasks.task import Corpus, Metric, Task, TaskOption

__all__ = [
    "TASKS",
    "Corpus",
    "Metric",
    "Task",
    "TaskOption",
    "check_data",
    "known_metrics",
    "metric_fault",
    "metric_names",
    "model_class",
    "tasks_of",
]
