"""The tasks that models are trained for, one file each; code elsewhere asks the task, never its name."""

from typing import TYPE_CHECKING

from wordorder.lazy import lazy_names
from wordorder.tasks.catalog import (
    TASKS,
    DataConfig,
    check_data,
    known_metrics,
    metric_fault,
    metric_names,
    model_class,
    tasks_of,
    token_faults,
)
from wordorder.tasks.task import Corpus, Metric, Task, TaskOption

if TYPE_CHECKING:
    from wordorder.tasks.preparation import prepare, prepare_small

__all__ = [
    "TASKS",
    "Corpus",
    "DataConfig",
    "Metric",
    "Task",
    "TaskOption",
    "check_data",
    "known_metrics",
    "metric_fault",
    "metric_names",
    "model_class",
    "prepare",
    "prepare_small",
    "tasks_of",
    "token_faults",
]

# they load numpy and torch
_NAMES = ("prepare", "prepare_small")
__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(_NAMES, f"{__name__}.preparation"))
