"""Apache Parquet files, read by pyarrow."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wordorder.data.corpora.lines import Found
from wordorder.errors import MissingExtra
from wordorder.limits import check_plain, one_line


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
                batches = file.iter_batches(row_groups=list(groups))
                rows = [row for batch in batches for row in batch.to_pylist()]
            except wrong as error:
                fault = f"{damaged}: {one_line(error)}"
                if not whole:
                    reason = str(error).splitlines()[0]
                    part = f"row group {groups.start} (rows {before + 1} to {before + here})"
                    fault = f"{path} {part} cannot be read: {reason}"
                yield Found(None, before + 1, fault)
            else:
                yield from (Found(row, number) for number, row in enumerate(rows, start=before + 1))
            before += here
        if whole and not before:
            yield Found(None, 0, f"{path} has no row")
