"""Apache Parquet, row group by row group."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wordorder.data.readers.reader import Fault, Note, Reading, Row
from wordorder.errors import MissingExtra
from wordorder.files import check_plain, one_line

_ROWS = 1_000
"""Rows that are held at the same time."""


def read_parquet(path: Path, reading: Reading) -> Iterator[Row | Fault | Note]:
    """Yield one row per record; of a damaged file what can be read of each row group."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "train") from error
    arrow: Any = pyarrow  # neither has type stubs
    reader: Any = parquet
    wrong = (arrow.ArrowException, ValueError, OSError)  # OSError too where its content is damaged
    check_plain(path)
    if path.stat().st_size == 0:
        yield Fault(f"{path} is empty")
        return
    try:
        file = reader.ParquetFile(path)
    except wrong as error:
        if getattr(error, "errno", None) is not None:  # the disk, not what is on it
            raise
        yield Fault(f"{path} is not a Parquet file, or is damaged: {one_line(error)}")
        return
    with file:
        names: list[str] = file.schema_arrow.names
        if len(set(names)) < len(names):
            yield Fault(f"{path} is not a Parquet file, or is damaged: two of its columns have the same name")
            return
        # of a column within another the outer one
        needed = {name if name in names else name.partition(".")[0] for name in reading.needed}
        columns = [name for name in names if name in needed] if needed and needed <= set(names) else None
        before = 0
        for group in range(file.num_row_groups):
            end = before + file.metadata.row_group(group).num_rows
            number = before
            try:
                for batch in file.iter_batches(_ROWS, row_groups=[group], columns=columns):
                    for number, values in enumerate(batch.to_pylist(), start=number + 1):  # noqa: B020
                        yield Row(values, f"row {number}")
            except wrong as error:
                if getattr(error, "errno", None) is not None:  # the disk, not what is on it
                    raise
                part = f"row group {group} (rows {number + 1} to {end})"
                yield Fault(f"{path} {part} cannot be read: {one_line(error)}")
            before = end
        if not before:
            yield Fault(f"{path} has no row")
