"""The tasks that models are trained for, one file each; code elsewhere asks the task, never its name."""

from typing import TYPE_CHECKING

from wordorder.registry import lazy_names
from wordorder.tasks.catalog import (
    TASKS,
    known_metrics,
    metric_fault,
    metric_names,
    model_class,
    task_faults,
    task_options,
    tasks_of,
)
from wordorder.tasks.task import Corpus, Metric, Task, TaskOptions

if TYPE_CHECKING:
    from wordorder.tasks.causal_lm import CausalLMOptions
    from wordorder.tasks.classification import ClassificationOptions
    from wordorder.tasks.masked_lm import MaskedLMOptions
    from wordorder.tasks.preparation import prepare, prepare_small, small_vocabulary
    from wordorder.tasks.regression import RegressionOptions
    from wordorder.tasks.translation import TranslationOptions

__all__ = [
    "TASKS",
    "CausalLMOptions",
    "ClassificationOptions",
    "Corpus",
    "MaskedLMOptions",
    "Metric",
    "RegressionOptions",
    "Task",
    "TaskOptions",
    "TranslationOptions",
    "known_metrics",
    "metric_fault",
    "metric_names",
    "model_class",
    "prepare",
    "prepare_small",
    "small_vocabulary",
    "task_faults",
    "task_options",
    "tasks_of",
]

_FILES = {
    "causal_lm": ("CausalLMOptions",),
    "classification": ("ClassificationOptions",),
    "masked_lm": ("MaskedLMOptions",),
    "preparation": ("prepare", "prepare_small", "small_vocabulary"),
    "regression": ("RegressionOptions",),
    "translation": ("TranslationOptions",),
}
"""Files of this folder that are loaded when one of these names is asked for; preparation loads numpy and torch."""
__getattr__, __dir__ = lazy_names(
    __name__, {name: f"{__name__}.{file}" for file, names in _FILES.items() for name in names}
)
