"""Draw the examples of a generated task: training, validation and test, with no text in two of them."""

import numpy as np

from wordorder.data.corpora.document import Part, Row
from wordorder.data.generated.catalog import GENERATED, lengths_of
from wordorder.data.generated.task import GeneratedTask, Lengths
from wordorder.data.names import TASK
from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput

TRAIN_EXAMPLES, TEST_EXAMPLES = 10_000, 1_000
"""Examples of training and of the test where the recipe gives none."""
_TRIES = 50  # for each example that is wanted
_MISSES = 20_000  # in a row, after which no text is expected to be new
_SPLITS = ("train", "test", "validation")


def read_task(name: str, data: DataSettings) -> list[Part]:
    """Return the splits of `task:NAME`, which depend on data.seed, the options of [data] and nothing else.

    Lengths are drawn uniformly. Training is drawn first and may have a text more than once, as short ones must be;
    test and validation have each text once, and none that an earlier split has. Of lengths with few texts, all of which
    training has, they therefore have few or none. Validation has the lengths of training: what chooses a checkpoint
    must not see those of the test.

    Raises:
        BadInput: there are not as many different texts of these lengths as the splits need.
    """
    task, taken = GENERATED[name], set[str]()
    parts: dict[str, Part] = {}
    for number, split in enumerate(_SPLITS):
        rng = np.random.default_rng([data.seed, number])
        lengths = lengths_of(task, data)[split]
        rows = (
            [_row(task, rng, lengths, data) for _ in range(data.train_examples or TRAIN_EXAMPLES)]
            if split == "train"
            else _new_rows(task, rng, lengths, data, split, taken)
        )
        taken |= {str(row[data.text_column]) for row in rows}
        parts[split] = Part(origin=f"{TASK}:{name} {split}", rows=rows, split=split, by_rule=True)
    return [parts[split] for split in ("train", "validation", "test")]


def _row(task: GeneratedTask, rng: np.random.Generator, lengths: Lengths, data: DataSettings) -> Row:
    length = int(rng.integers(lengths[0], lengths[1] + 1))
    text, answer = task.draw(rng, length)
    return {data.text_column: text, data.label_column: answer, data.target_column: answer, "length": length}


def _new_rows(
    task: GeneratedTask, rng: np.random.Generator, lengths: Lengths, data: DataSettings, split: str, taken: set[str]
) -> list[Row]:
    found: dict[str, Row] = {}
    wanted, misses = data.test_examples or TEST_EXAMPLES, 0
    for _ in range(_TRIES * wanted):
        row = _row(task, rng, lengths, data)
        text = str(row[data.text_column])
        if text in taken or text in found:
            misses += 1
        else:
            found[text], misses = row, 0
        if len(found) == wanted:
            return list(found.values())
        if misses == _MISSES:
            break
    option = "test_lengths" if split == "test" else "train_lengths"
    raise BadInput(
        f"data.{option}: at lengths {lengths[0]} to {lengths[1]} {data.source} gives only {len(found)} {split} texts "
        f"that no other split has, of {wanted} (data.test_examples) that are wanted; raise the lengths, or "
        "lower data.train_examples or data.test_examples"
    )
