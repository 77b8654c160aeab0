"""Parquet and Feather files and pyarrow tables as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from volmar._memory import require_memory
from volmar.tables.errors import (
    MAX_FRAME_COLUMNS,
    TableError,
    import_pandas,
    need,
    one_line,
    refuse_wide,
    shown,
)

__all__ = ["as_frame", "read_arrow", "require_group"]

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}  # bytes per value in memory; 8 for other types


def read_arrow(path: Path, *, is_parquet: bool) -> Any:
    """Read a Parquet or Feather file into a DataFrame, after checks of its size and content."""
    try:
        import pandas  # noqa: F401
        import pyarrow as pa  # type: ignore[import-untyped]
        from pyarrow import feather, parquet
    except ImportError as error:
        raise need("pandas and pyarrow") from error
    kind = "Parquet" if is_parquet else "Feather"
    try:
        # Opened here, because errors of pyarrow would show the whole path.
        with path.open("rb") as file:
            if is_parquet:
                with parquet.ParquetFile(file) as opened:
                    require_group(opened, range(opened.num_row_groups), path.name)
                    table = opened.read()
            else:
                table = feather.read_table(file)
        refuse_wide(path.name, table.num_columns, MAX_FRAME_COLUMNS)
        table.validate(full=True)  # otherwise text that is not UTF-8 raises an error later
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(
            f"{path.name} cannot be read as {kind}: {one_line(error)}. Save it again."
        ) from error
    frame = as_frame(path.name, table)
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    if not len(frame):
        raise TableError(f"{path.name} has no rows. Give a file with rows.")
    return frame


def require_group(opened: Any, groups: Iterable[int], name: str) -> None:
    """Raise `MemoryError` if row groups do not fit into memory.

    The file may be much smaller, because repeated values are compressed.
    """
    about, schema = opened.metadata, opened.schema
    n_rows = sum(max(about.row_group(group).num_rows, 0) for group in groups)
    width = sum(_WIDTHS.get(schema.column(j).physical_type, 8) for j in range(len(schema)))
    require_memory(float(n_rows) * width, f"the content of {name}", "Save it in several files.")


def as_frame(source: str, table: Any) -> Any:
    """Return a pyarrow table as a DataFrame.

    Its pandas metadata (an index, dtypes) is ignored if it does not fit the columns.
    """
    import pyarrow as pa

    try:
        return table.to_pandas()
    except MemoryError:
        raise
    except Exception as wrong:  # the metadata is JSON with any content
        if not table.num_columns:
            raise TableError(f"{source} has no columns. Give a table with columns.") from wrong
    pd = import_pandas()
    found = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        is_coded = pa.types.is_dictionary(column.type)
        try:
            # The categories of pandas must be unique and not missing.
            plain = column.cast(column.type.value_type) if is_coded else column
            found.append(plain.to_pandas())
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise TableError(
                f"{source}: column {shown(name)} of type {column.type!s:.80} cannot be read: "
                f"{one_line(error)}. Leave it out of the table."
            ) from error
    return pd.concat(found, axis=1, ignore_index=True).set_axis(table.column_names, axis=1)
