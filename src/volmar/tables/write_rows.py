"""The rows of a table, written with their label as one more column."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._files import open_atomically
from volmar.tables.columns import as_columns
from volmar.tables.errors import TableError, need
from volmar.tables.read import LoadedTable, read_fields
from volmar.tables.write_columns import (
    SEPARATORS,
    encoded,
    open_parquet,
    packed,
    parquet_errors,
    written_kind,
)

__all__ = ["open_rows", "write_rows"]

_LARGEST_DENSE = 1 << 30  # bytes a sparse table may take when its rows are written
_ROWS = 1 << 16  # rows put into text at once


def write_rows(
    path: str | os.PathLike[str],
    data: Any,
    labels: Any,
    *,
    kept: Any = None,
    name: str = "cluster",
    force: bool = False,
) -> str:
    """Write the rows of a table with their label as one more column.

    From a text file to a text file the fields are written as they stand there: 007 stays 007.

    Parameters
    ----------
    path : path
        The file: CSV or TSV, compressed if it ends with .gz, or Parquet, by its suffix.
    data : LoadedTable, DataFrame, ndarray or sparse array
        The rows.
    labels : array of shape (n_kept,)
        Labels of the rows that are kept.
    kept : array of bool, shape (n,), default=None
        Which rows have a label; that of others is left empty. None is all.
    name : str, default="cluster"
        Name of the column. A number is added where the table has a column of that name.
    force : bool, default=False
        Whether a file that is there may be replaced.

    Returns
    -------
    str
        The name that the column got.

    Raises
    ------
    TableError
        If the file is there and `force` is False, cannot be written, or has another suffix.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.tables import write_rows
    >>> X = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> write_rows("/dev/null", X, [0, 1])
    'cluster'
    """
    kind = written_kind(path)
    frame = _frame(data, as_text=kind != "parquet")
    name = _free_name(name, frame.columns)
    with open_rows(path, name=name, force=force) as write:
        write(frame, labels, kept)
    return name


@contextmanager
def open_rows(
    path: str | os.PathLike[str], *, name: str = "cluster", force: bool = False
) -> Iterator[Callable[..., None]]:
    """Open a file as `write_rows` makes it, for rows that come in blocks.

    Parameters
    ----------
    path, force
        As for `write_rows`.
    name : str, default="cluster"
        Name of the column of labels, which no block may have.

    Yields
    ------
    callable
        Takes a DataFrame with further rows, the labels of those that are kept, and which are
        (None is all). The file is there when the context is left.

    Raises
    ------
    TableError
        As for `write_rows`.
    """
    kind = written_kind(path)
    if kind == "parquet":
        with open_parquet(path, force=force) as write_table:
            yield lambda frame, labels, kept=None: write_table(
                _arrow_table(path, _labelled(frame, name, labels, kept))
            )
        return
    separator = SEPARATORS[kind]
    with (
        open_atomically(path, force=force, error=TableError) as file,
        packed(path, file) as target,
    ):
        has_header = False

        def write(frame: Any, labels: Any, kept: Any = None) -> None:
            nonlocal has_header
            labelled = _labelled(frame, name, labels, kept)
            for start in range(0, max(len(labelled), 1), _ROWS):
                rows = labelled.iloc[start : start + _ROWS]
                text = rows.to_csv(
                    index=False, sep=separator, header=not has_header, lineterminator="\n"
                )
                target.write(encoded(text))
                has_header = True

        yield write


def _frame(data: Any, *, as_text: bool) -> Any:
    """Return the table as a DataFrame; its fields as they stand in a text file, if they can."""
    try:
        import pandas as pd
    except ImportError as error:
        raise need("pandas") from error
    table = as_columns(data)
    if as_text and isinstance(data, LoadedTable) and data.path is not None:
        fields = read_fields(data.path)
        if fields is not None:
            if len(fields) != table.n_rows:
                raise TableError(
                    f"{data.path} has changed since it was read; run the command again"
                )
            return fields
    if table.is_frame:
        frame = table.data
        return frame.reset_index() if any(n is not None for n in frame.index.names) else frame
    values = table.data
    if table.is_sparse:
        size = 8 * values.shape[0] * values.shape[1]
        if size > _LARGEST_DENSE:
            raise TableError(
                f"{table.source} is sparse, and its rows as a table would take "
                f"{size / 2**30:.1f} GiB; write the labels alone"
            )
        values = values.toarray()
    return pd.DataFrame(values, columns=table.names)


def _free_name(name: str, columns: Any) -> str:
    taken = set(map(str, columns))
    names = [name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))]
    return next(one for one in names if one not in taken)


def _labelled(frame: Any, name: str, labels: Any, kept: Any) -> Any:
    import pandas as pd

    labels = np.asarray(labels)
    has_label: NDArray[np.bool_] = (
        np.ones(len(frame), dtype=bool) if kept is None else np.asarray(kept, dtype=bool)
    )
    if has_label.shape != (len(frame),) or labels.shape != (int(has_label.sum()),):
        raise ValueError(
            f"labels must have one entry for each kept row, got the shapes {labels.shape} for "
            f"labels and {has_label.shape} for kept, with {int(has_label.sum())} of "
            f"{len(frame)} rows kept."
        )
    column = pd.Series(pd.NA, index=frame.index, dtype=_label_dtype(labels))
    column[has_label] = labels
    named = frame.set_axis([str(one) for one in frame.columns], axis=1)
    return named.assign(**{name: column.array})


def _label_dtype(labels: NDArray[Any]) -> str:
    return "Int64" if labels.dtype.kind in "biu" else "object"


def _arrow_table(path: str | os.PathLike[str], frame: Any) -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]

    with parquet_errors(path):
        table = pa.Table.from_pandas(frame, preserve_index=False)
    # Columns without a value in the first block: later ones may hold text there.
    return table.cast(
        pa.schema(
            [
                field.with_type(pa.string()) if pa.types.is_null(field.type) else field
                for field in table.schema
            ],
            metadata=table.schema.metadata,
        )
    )
