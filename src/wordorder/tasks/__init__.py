"""The tasks that models are trained for, one file each; code elsewhere asks the task, never its name."""

from wordorder.tasks.catalog import TASKS, check_data
from wordorder.tasks.task import Corpus, Task, TaskOption

__all__ = ["TASKS", "Corpus", "Task", "TaskOption", "check_data"]
