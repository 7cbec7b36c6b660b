"""Tasks whose texts and answers are drawn by chance: the tasks by name, and the faults of a recipe that names one."""

from wordorder.data.generated import order, recall, strings
from wordorder.data.generated.task import GeneratedTask, Lengths
from wordorder.data.settings import TASK, DataSettings
from wordorder.section import unknown_choice

GENERATED: dict[str, GeneratedTask] = {task.name: task for task in (*order.TASKS, *strings.TASKS, *recall.TASKS)}
"""Name after "task:" in `data.source` -> task."""


def lengths_of(task: GeneratedTask, data: DataSettings) -> dict[str, Lengths]:
    """Return the shortest and the longest length of each split."""
    train, test = data.train_lengths or task.train_lengths, data.test_lengths or task.test_lengths
    low, high = train
    return {"train": (low, high), "validation": (low, high), "test": (test[0], test[1])}


def generated_faults(data: DataSettings) -> list[str]:
    """Return the faults of a source "task:NAME": its name and its lengths."""
    if data.generated is None:
        return []
    if data.generated not in GENERATED:
        return [unknown_choice("data.source", data.source, (f"{TASK}:{name}" for name in GENERATED))]
    task = GENERATED[data.generated]
    faults: list[str] = []
    for split in ("train", "test"):
        low, high = lengths_of(task, data)[split]
        if low < task.shortest:
            faults.append(f"data.{split}_lengths: {data.source} begins at length {task.shortest}, got {low}")
        if task.longest is not None and high > task.longest:
            faults.append(f"data.{split}_lengths: {data.source} ends at length {task.longest}, got {high}")
    return faults
