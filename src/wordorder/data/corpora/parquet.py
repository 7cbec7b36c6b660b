"""Apache Parquet files, read by pyarrow."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wordorder.data.corpora.document import Row
from wordorder.data.corpora.lines import Found
from wordorder.errors import BadInput, MissingExtra
from wordorder.limits import MOST_UNPACKED, check_plain, most_unpacked, one_line

_AT_A_TIME = 1024  # rows
_BYTES_OF_A_ROW, _BYTES_OF_A_VALUE = 100, 50  # that Python takes beside the content


def read_parquet(path: Path, columns: Sequence[str] | None = None, *, whole: bool = False) -> Iterator[Found]:
    """Yield one row per record, with all columns; not `whole`, what can be read of each row group. See `RowReader`."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "train") from error
    arrow: Any = pyarrow  # neither has type stubs
    reader: Any = parquet
    wrong = (arrow.ArrowException, ValueError, OSError)  # OSError too where its content is damaged
    damaged = f"{path} is not a Parquet file, or is damaged"
    if whole:
        check_plain(path)
        if path.stat().st_size == 0:
            yield Found(None, 0, f"{path} is empty")
            return
    try:
        check_plain(path)
        file = reader.ParquetFile(path)
    except wrong as error:
        yield Found(None, 0, f"{damaged}: {one_line(error)}")
        return
    with file:
        names: list[str] = file.schema_arrow.names
        if len(set(names)) < len(names):
            yield Found(None, 0, f"{damaged}: two of its columns have the same name")
            return
        count, before = file.num_row_groups, 0
        for groups in [range(count)] if whole else [range(group, group + 1) for group in range(count)]:
            here = sum(file.metadata.row_group(group).num_rows for group in groups)
            try:
                rows = rows_of(file, groups, path)
            except wrong as error:
                fault = str(error) if isinstance(error, BadInput) else f"{damaged}: {one_line(error)}"
                if not whole:
                    reason = str(error).splitlines()[0].replace(f"{path} unpacks", "it unpacks")
                    part = f"row group {groups.start} (rows {before + 1} to {before + here})"
                    fault = f"{path} {part} cannot be read: {reason}"
                yield Found(None, before + 1, fault)
            else:
                yield from (Found(row, number) for number, row in enumerate(rows, start=before + 1))
            before += here
        if whole and not before:
            yield Found(None, 0, f"{path} has no row")


def rows_of(file: Any, groups: Sequence[int], path: Path) -> list[Row]:
    """Return the rows of row groups, counting their bytes as they are unpacked.

    What the file holds may be so many times its own size, see `most_unpacked`. What Python takes beside it for each row
    and value says nothing of the file, and is held against `MOST_UNPACKED` alone.
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
