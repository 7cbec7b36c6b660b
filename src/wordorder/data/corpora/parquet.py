"""Apache Parquet files, read by pyarrow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wordorder.data.corpora.document import Row
from wordorder.errors import BadInput, MissingExtra
from wordorder.limits import MOST_UNPACKED, check_plain, most_unpacked, one_line

_AT_A_TIME = 1024  # rows
_BYTES_OF_A_ROW, _BYTES_OF_A_VALUE = 100, 50  # that Python takes beside the content


def read_parquet(path: Path) -> list[Row]:
    """Return one row per record, with all columns.

    Raises:
        BadInput: the file is not Parquet, has no row, or unpacks to too much.
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "train") from error
    arrow: Any = pyarrow  # neither has type stubs
    reader: Any = parquet
    check_plain(path)
    if path.stat().st_size == 0:
        raise BadInput(f"{path} is empty")
    try:
        with reader.ParquetFile(path) as file:
            names: list[str] = file.schema_arrow.names
            if len(set(names)) < len(names):
                raise ValueError("two of its columns have the same name")
            rows = rows_of(file, range(file.num_row_groups), path)
    except BadInput:
        raise
    except (arrow.ArrowException, ValueError, OSError) as error:  # OSError too where its content is damaged
        raise BadInput(f"{path} is not a Parquet file, or is damaged: {one_line(error)}") from error
    if not rows:
        raise BadInput(f"{path} has no row")
    return rows


def rows_of(file: Any, groups: Sequence[int], path: Path) -> list[Row]:
    """Return the rows of row groups, counting their bytes as they are unpacked.

    What the file holds may be so many times its own size, see `most_unpacked`. What Python takes beside it for each row
    and value says nothing of the file, and is held against `MOST_UNPACKED` alone.

    Args:
        file: the file, as pyarrow opened it.
        groups: numbers of the row groups.
        path: of the file.

    Raises:
        BadInput: they are more than such a file may unpack to.
    """
    limit = most_unpacked(path)
    if sum(file.metadata.row_group(group).total_byte_size for group in groups) > limit:
        raise _too_many(path, limit)
    rows: list[Row] = []
    held = beside = 0
    for batch in file.iter_batches(batch_size=_AT_A_TIME, row_groups=list(groups)):
        held += sum(map(_bytes_of, batch.columns))
        beside += batch.num_rows * (_BYTES_OF_A_ROW + _BYTES_OF_A_VALUE * batch.num_columns)
        if held > limit:
            raise _too_many(path, limit)
        if held + beside > MOST_UNPACKED:
            raise _too_many(path, MOST_UNPACKED)
        rows += batch.to_pylist()
    return rows


def _too_many(path: Path, limit: int) -> BadInput:
    return BadInput(f"{path} unpacks to more than {limit / 2**30:.3g} GiB; divide it into files with fewer rows")


def _bytes_of(column: Any) -> int:
    """Count the bytes of a column, of a text that stands in a dictionary for each row that has it."""
    import pyarrow
    from pyarrow import compute

    arrow: Any = pyarrow
    functions: Any = compute
    kind = getattr(column.type, "value_type", None) if arrow.types.is_dictionary(column.type) else None
    if kind is None or not any(is_it(kind) for is_it in (arrow.types.is_string, arrow.types.is_large_string)):
        return column.nbytes
    return functions.sum(functions.binary_length(column.dictionary).take(column.indices)).as_py() or 0
