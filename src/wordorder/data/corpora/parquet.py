"""Apache Parquet files, read by pyarrow."""

from pathlib import Path
from typing import Any

from wordorder.data.corpora.document import Row
from wordorder.errors import BadInput, MissingExtra
from wordorder.limits import one_line


def read_parquet(path: Path) -> list[Row]:
    """Return one row per record, with all columns.

    Raises:
        BadInput: the file is not Parquet or has no row.
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "train") from error
    arrow: Any = pyarrow  # neither has type stubs
    reader: Any = parquet
    if path.stat().st_size == 0:
        raise BadInput(f"{path} is empty")
    try:
        rows: list[Row] = reader.read_table(path, partitioning=None).to_pylist()
    except (arrow.ArrowException, ValueError, OSError) as error:  # OSError too where its content is damaged
        raise BadInput(f"{path} is not a Parquet file, or is damaged: {one_line(error)}") from error
    if not rows:
        raise BadInput(f"{path} has no row")
    return rows
