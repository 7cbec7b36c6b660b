"""The checked section `[data]`: its values, and what the task makes of them."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from wordorder.data.generated.catalog import generated_faults
from wordorder.data.names import UNTRAINED_KINDS
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
    """Return the faults of the two sections together.

    Only single labelled texts do without special tokens, and a tokeniser that is trained for a streamed text needs
    data.tokenizer_documents.
    """
    if data.streaming and data.tokenizer_documents is None and tokenizer.kind not in UNTRAINED_KINDS:
        return [
            f"data.tokenizer_documents must say on how many of the first documents the {tokenizer.kind} tokeniser is "
            "trained, since streaming does not read all of them before; or take tokenizer.kind existing, or byte"
        ]
    if tokenizer.add_special_tokens or (TASKS[data.task].labels is not None and not data.pair_column):
        return []
    why = "[SEP] is what sets the two texts of a pair apart" if data.pair_column else f"task {data.task} needs them"
    return [f"tokenizer.add_special_tokens must be true here: {why}; leave it out"]


def streaming_faults(data: DataConfig, training: Mapping[str, object]) -> list[str]:
    """Return the faults of [training] where the text is streamed."""
    if not data.streaming:
        return []
    faults: list[str] = []
    steps = training.get("max_steps")
    if type(steps) is not int or steps < 1:
        faults.append(
            "training.max_steps must be given with data.streaming: nobody knows how many examples an epoch will have"
        )
    if training.get("dataloader_num_workers"):
        faults.append(
            "training.dataloader_num_workers must be 0 with data.streaming, whose place in the text the training "
            "process keeps; leave it out"
        )
    return faults
