"""The tasks by name. A new task is a file with a subclass of `Task` and a line here; see CONTRIBUTING.md."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wordorder.data.generated import GENERATED
from wordorder.data.generated.task import GeneratedTask
from wordorder.data.settings import DataSettings, TokenizerConfig
from wordorder.errors import BadInput
from wordorder.section import unknown_choice
from wordorder.tasks.task import PERPLEXITY, Metric, Task, TaskOptions

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


class _Tasks(Mapping[str, Task[Any]]):
    """Name in recipes -> task. A file is loaded when its task is first asked for, so that it may import torch."""

    def __getitem__(self, name: str) -> Task[Any]:
        return _load(CLASSES[name])

    def __contains__(self, name: object) -> bool:
        return name in CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)


@cache
def _load(place: str) -> Task[Any]:
    module, _, kind = place.partition(":")
    return getattr(import_module(f"wordorder.tasks.{module}"), kind)()


TASKS = _Tasks()
"""Name in recipes -> task."""


def task_options(table: Mapping[str, Any]) -> TaskOptions:
    """Return the section [task], whose `name` says which options it may have.

    Raises:
        BadInput: the name is unknown, an option belongs to another task, or a value is wrong; every fault is listed.
    """
    if "name" not in table:
        raise BadInput(f"[task]: name is missing; valid values: {', '.join(TASKS)}")
    name = table["name"]
    if not isinstance(name, str) or name not in TASKS:
        raise BadInput(unknown_choice("task.name", name, TASKS))
    kind = TASKS[name].Options
    faults: list[str] = []
    values = dict(table)
    for option in [option for option in table if option not in kind.model_fields]:
        if owners := [other for other, task in TASKS.items() if option in task.Options.model_fields]:
            faults.append(f"task.{option} is only for {_tasks(owners)}, not for {name}; leave it out")
            del values[option]
    try:
        options = kind(**values)
    except BadInput as error:
        raise BadInput([*faults, *error.faults]) from None
    if faults:
        raise BadInput(faults)
    return options


def task_faults(data: DataSettings, options: TaskOptions, tokenizer: TokenizerConfig | None = None) -> list[str]:
    """Return the faults of [data] and [task] together, and of [tokenizer] where it is given."""
    task, faults = TASKS[options.name], options.faults_with(data)
    generated = GENERATED.get(data.generated or "")
    if generated is not None and task.name not in (forms := forms_of(generated)):
        faults.append(f"task.name: {data.source} can be put as {_tasks(forms)}, not as {task.name}; take one of these")
    if tokenizer is None or tokenizer.add_special_tokens:
        return faults
    pairs = task.columns(data, options).pair is not None
    if task.labels is None or pairs:  # only single labelled texts do without special tokens
        why = "[SEP] is what sets the two texts of a pair apart" if pairs else f"task {task.name} needs them"
        faults.append(f"tokenizer.add_special_tokens must be true here: {why}; leave it out")
    return faults


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
    return f"training.select: task {task} has no {metric}{elsewhere}; valid: {', '.join(valid)}"


def _tasks(names: Sequence[str]) -> str:
    """Return "task x", or "tasks x, y and z"."""
    return f"task {names[0]}" if len(names) == 1 else f"tasks {', '.join(names[:-1])} and {names[-1]}"
