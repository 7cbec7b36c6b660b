"""The checked section `[data]`: its values, and what the task makes of them."""

from typing import Annotated

from pydantic import AfterValidator

from wordorder.data.generated.catalog import generated_faults
from wordorder.data.settings import DataSettings, TokenizerConfig
from wordorder.errors import BadInput
from wordorder.section import unknown_choice
from wordorder.tasks import TASKS, check_data


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
        """Return one line for each value that does not go with another, or with the task."""
        return [*super().faults(), *generated_faults(self), *check_data(self)]


def token_faults(data: DataConfig, tokenizer: TokenizerConfig) -> list[str]:
    """Return the faults of the two sections together: only single labelled texts do without special tokens."""
    if tokenizer.add_special_tokens or (TASKS[data.task].labels is not None and not data.pair_column):
        return []
    why = "[SEP] is what sets the two texts of a pair apart" if data.pair_column else f"task {data.task} needs them"
    return [f"tokenizer.add_special_tokens must be true here: {why}; leave it out"]
