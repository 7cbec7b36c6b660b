"""The tasks by name. A new task is a file with a subclass of `Task` and a line here; see CONTRIBUTING.md."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, get_args

from pydantic import AfterValidator

from wordorder.data.generated import GENERATED, generated_faults
from wordorder.data.generated.task import GeneratedTask
from wordorder.data.settings import DataSettings, TokenizerConfig
from wordorder.errors import BadInput
from wordorder.section import unknown_choice
from wordorder.tasks.task import PERPLEXITY, Metric, Task, TaskOption

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CLASSES = {
    "masked-lm": "masked_lm:MaskedLM",
    "causal-lm": "causal_lm:CausalLM",
    "classification": "classification:Classification",
    "regression": "regression:Regression",
    "translation": "translation:Translation",
}
"""Name in recipes -> file of this folder and the class in it."""


class _Tasks(Mapping[str, Task]):
    """Name in recipes -> task. A file is loaded when its task is first asked for, so that it may import torch."""

    def __getitem__(self, name: str) -> Task:
        return _load(CLASSES[name])

    def __contains__(self, name: object) -> bool:
        return name in CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)


@cache
def _load(place: str) -> Task:
    module, _, kind = place.partition(":")
    return getattr(import_module(f"wordorder.tasks.{module}"), kind)()


TASKS = _Tasks()
"""Name in recipes -> task."""


def _known(task: str) -> str:
    if task not in TASKS:
        raise BadInput(unknown_choice("data.task", task, TASKS))
    return task


class DataConfig(DataSettings):
    """The corpus, the task and the split, checked by the task too.

    Raises:
        BadInput: a value has the wrong type, is out of range, is not one of the known names, or is not for this task.
    """

    task: Annotated[str, AfterValidator(_known)]
    """One of the names of `wordorder.tasks.TASKS`."""

    def faults(self) -> list[str]:
        return [*super().faults(), *generated_faults(self), *check_data(self)]


def token_faults(data: DataConfig, tokenizer: TokenizerConfig) -> list[str]:
    """Return the faults of the two sections together: only single labelled texts do without special tokens."""
    if tokenizer.add_special_tokens or (TASKS[data.task].labels is not None and not data.pair_column):
        return []
    why = "[SEP] is what sets the two texts of a pair apart" if data.pair_column else f"task {data.task} needs them"
    return [f"tokenizer.add_special_tokens must be true here: {why}; leave it out"]


def check_data(data: DataSettings) -> list[str]:
    """Return a fault for each value of [data] that its task does not read."""
    task = TASKS[data.task]
    faults: list[str] = []
    for option in data.given(*get_args(TaskOption)):
        if option not in task.options:
            known = [name for name, other in TASKS.items() if option in other.options]
            faults.append(f"data.{option} is only for {_tasks(known)}, not for {data.task}; leave it out")
    if data.packing not in task.packings:
        known = [name for name, other in TASKS.items() if data.packing in other.packings]
        faults.append(f"data.packing {data.packing} is only for {_tasks(known)}, not for {data.task}; leave it out")
    generated = GENERATED.get(data.generated or "")
    if generated is not None and data.task not in (forms := forms_of(generated)):
        faults.append(f"data.task: {data.source} can be put as {_tasks(forms)}, not as {data.task}; take one of these")
    return faults + task.data_faults(data)


def forms_of(generated: GeneratedTask) -> tuple[str, ...]:
    """Return the names of the tasks as which a generated task can be put."""
    return tuple(name for name, task in TASKS.items() if task.answers == "any" or (task.answers and generated.answers))


def model_class(network: str, task: str) -> "type[PreTrainedModel]":
    """Return the class of models for a network and a task; BadInput for unknown ones, or where it does not do it."""
    from wordorder import models

    found = TASKS[task].model_class(network) if task in TASKS else None
    return models.model_class(network, task) if found is None else found


def tasks_of(network: str) -> tuple[str, ...]:
    """Return the names of the tasks of a network: those that `build_model` takes, then those of recipes alone."""
    from wordorder.models import NETWORK_TASKS

    done = [name for name, task in TASKS.items() if task.model_class(network) is not None]
    return tuple(dict.fromkeys((*NETWORK_TASKS.get(network, ()), *done)))


def known_metrics() -> dict[str, Metric]:
    """Return the metrics of all tasks that can choose a checkpoint or rank models, by key."""
    every = ((*task.metrics, *task.answer_metrics, task.headline) for task in TASKS.values())
    found = {metric.key: metric for metrics in every for metric in metrics}
    return found | {PERPLEXITY.key: PERPLEXITY}  # masked-lm has one with a name of its own


def metric_names() -> tuple[str, ...]:
    """Return the names of the metrics of all tasks, each once."""
    names = [name for task in TASKS.values() for name in task.metric_names]
    return tuple(dict.fromkeys([*names, *(one.key for task in TASKS.values() for one in task.answer_metrics)]))


def metric_fault(metric: str, task: str, *, generated: bool = False) -> str | None:
    """Return the reason why a run, perhaps of a generated task, cannot choose its best checkpoint by a metric."""
    valid = ("loss", *(metric.key for metric in TASKS[task].metrics_of(generated)))
    if metric in valid or metric not in metric_names():
        return None  # an unknown name is reported with the other names of [training]
    others = [name for name, other in TASKS.items() if any(one.key == metric for one in other.metrics_of(generated))]
    elsewhere = f" (task {', '.join(others)} has)" if others else ""
    return f"training.metric_for_best_model: task {task} has no {metric}{elsewhere}; valid: {', '.join(valid)}"


def _tasks(names: Sequence[str]) -> str:
    """Return "task x", or "tasks x, y and z"."""
    return f"task {names[0]}" if len(names) == 1 else f"tasks {', '.join(names[:-1])} and {names[-1]}"
