"""Report the texts that a run left out of training, or that leak between splits, on the screen and in its folder."""

from pathlib import Path
from typing import Any

from wordorder.data import PreparedData, ReadingLog, TextStream
from wordorder.durable import write_json
from wordorder.training.loop.processes import Processes
from wordorder.training.loop.progress import Progress

READING = "reading.json"
"""File of a run folder with the lines that could not be read, copies and leaks, with their number by file; absent where
there are none."""


def advise_of_reading(prepared: PreparedData, progress: Progress) -> None:
    """Show the log of reading, after the data was prepared.

    Args:
        prepared: the data.
        progress: is told.
    """
    for line in prepared.log.lines():
        progress.advise(line)


def report_reading(prepared: PreparedData, folder: Path, progress: Progress, arguments: Any) -> None:
    """Show the log of a streamed text, and write the log of all reading; called by all processes.

    Args:
        prepared: the data.
        folder: the run folder.
        progress: is told.
        arguments: transformers.TrainingArguments.
    """
    streamed = ReadingLog()
    if isinstance(prepared.train, TextStream):
        processes = Processes(arguments.process_index, arguments.world_size)
        streamed = streamed.merged(processes.everyones(prepared.train.log.state_dict()))
    for line in streamed.lines():
        progress.say(line)
    both = streamed.merged([prepared.log.state_dict(), streamed.state_dict()])
    if both and arguments.process_index == 0:
        write_json(folder / READING, both.summary())
