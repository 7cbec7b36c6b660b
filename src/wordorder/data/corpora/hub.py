"""Data sets of the Hugging Face hub, through `datasets`."""

import re
from typing import Any

from wordorder.data.corpora.document import Part, Row
from wordorder.errors import BadInput, MissingExtra

_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_READERS = frozenset(
    "arrow audiofolder cache conll csv eval hdf5 iceberg imagefolder json lance meshfolder pandas parquet pdffolder sql"
    " text videofolder webdataset xml".split()
)
"""Names that `datasets` gives to its readers of files, and that no data set has."""

_SPLITS = {"train": "train", "validation": "validation", "test": "test", "validation_matched": "validation"}


def read_hub(name: str) -> list[Part]:
    """Return the train, validation and test splits of `NAME` or `NAME:CONFIGURATION`.

    Classes are given by name. A split whose classes are all hidden (-1, as in GLUE's test sets) is left out, so test is
    then taken from train. All of the data is held in memory.

    Raises:
        BadInput: there is no such data set, or it cannot be fetched (offline) and is not cached.
        MissingExtra: datasets is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("datasets", "train") from error
    dataset_name, _, configuration = name.partition(":")
    check_hub_name(dataset_name)
    library: Any = datasets
    try:
        loaded: Any = library.load_dataset(dataset_name, configuration or None)
    except Exception as error:  # the library raises its own, fsspec's, httpx's and OSError; all mean the same here
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"data.source hub:{name} could not be loaded (is the network there, and the name right?): {reason}"
        ) from error
    known = {split: _SPLITS[split] for split in loaded if split in _SPLITS} if "train" in loaded else {}
    wanted: dict[str, str | None] = {**known} if len(known) > 1 else dict.fromkeys(known or loaded)
    return [
        Part(origin=f"hub:{name} {split}", rows=rows, split=role)
        for split, role in wanted.items()
        if (rows := _rows(loaded[split]))
    ]


def check_hub_name(name: str) -> None:
    """Refuse what is no name on the hub: the library would take it for a folder, or for one of its file readers.

    ``hub:pandas`` would read files of the working directory, and older versions of `datasets` unpickled them.

    Args:
        name: what follows `hub:`, without the configuration.

    Raises:
        BadInput: it is none.
    """
    if not name:
        raise BadInput("data.source hub: needs a name, as in hub:stanfordnlp/imdb")
    if not _NAME.fullmatch(name) or name in _READERS:
        raise BadInput(f"data.source hub:{name} is no name on the hub, such as stanfordnlp/imdb; write a path as it is")


def _rows(table: Any) -> list[Row]:
    """Return a split's rows with class names for class numbers; none where a class column is hidden throughout."""
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
