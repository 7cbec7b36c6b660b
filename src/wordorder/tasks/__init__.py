"""The tasks that models are trained for, one file each; nothing outside this folder asks for a task's name."""

from wordorder.tasks.catalog import TASKS, check_data
from wordorder.tasks.task import Corpus, Task, TaskOption

__all__ = ["TASKS", "Corpus", "Task", "TaskOption", "check_data"]
