"""Tables written whole: labels of rows, columns, or rows with their label as one more column."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._files import open_atomically, printable
from volmar.tables.columns import as_columns
from volmar.tables.errors import TableError, import_pandas, need, one_line, shown
from volmar.tables.formulas import neutral_fields, neutral_frame
from volmar.tables.read import LoadedTable, read_fields

__all__ = [
    "id_heading",
    "open_columns",
    "open_labels",
    "open_rows",
    "write_labels",
    "write_rows",
    "written_kind",
]

_OTHERS = ("label", "score", "confidence")
_SEPARATORS = {"csv": ",", "tsv": "\t"}
# A path without a suffix is that of a pipe or a device, most often: it gets text.
_SUFFIXES = {
    "": "csv",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "tsv",
    ".tsv.gz": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_ROWS = 1 << 16  # rows put into text at once
_LARGEST_DENSE = 1 << 30  # bytes a sparse table may take when its rows are written

AnyPath = str | os.PathLike[str]


def write_labels(
    path: AnyPath,
    ids: Any,
    id_name: str,
    labels: Any,
    scores: Any,
    *,
    confidence: Any = None,
    force: bool = False,
    raw_ids: bool = False,
) -> None:
    """Write a table with the columns id (or row), label and score.

    Parameters
    ----------
    path : path
        The file: CSV or TSV, compressed if it ends with .gz, or Parquet, by its suffix.
    ids : array of shape (n,)
        Names or numbers of the rows.
    id_name : str
        Name of the first column; "id" is written where it is that of another column.
    labels : array of int, shape (n,)
        The labels.
    scores : array of shape (n,) or (n, k)
        The decision function. Of k columns the largest minus the second largest is written:
        how far the row is from another label.
    confidence : array of shape (n,), default=None
        A last column, where given.
    force : bool, default=False
        Whether an existing file may be replaced.
    raw_ids : bool, default=False
        Whether CSV and TSV files get names and texts as they are. By default, texts that a
        spreadsheet would run as formulas get an apostrophe, which `match_labels` looks through.

    Raises
    ------
    TableError
        If the file exists and `force` is False, cannot be written, or has another suffix.
    """
    options = {"confidence": confidence is not None, "force": force, "raw_ids": raw_ids}
    with open_labels(path, id_name, **options) as write:
        write(ids, labels, scores, confidence)


@contextmanager
def open_labels(
    path: AnyPath,
    id_name: str,
    *,
    confidence: bool = False,
    p_value: bool = False,
    force: bool = False,
    raw_ids: bool = False,
) -> Iterator[Callable[..., None]]:
    """Open a file as `write_labels` makes it, for rows that come in blocks.

    Parameters
    ----------
    path, id_name, force, raw_ids
        As for `write_labels`.
    confidence, p_value : bool, default=False
        Whether there are columns of confidences and p-values.

    Yields
    ------
    callable
        Takes ids, labels, scores and any confidences and p-values. The file appears at the end.
    """
    more = [name for name, has in (("confidence", confidence), ("p_value", p_value)) if has]
    names = ["id" if id_name in more else id_heading(id_name), *_OTHERS[:2], *more]
    with open_columns(path, names, force=force, raw_ids=raw_ids) as write_columns:

        def write(ids: Any, labels: Any, scores: Any, *given: Any) -> None:
            extra = [np.asarray(one, dtype=float) for one in given if one is not None]
            if len(extra) != len(more):
                raise ValueError(f"the file has {more or 'columns without confidence'}.")
            write_columns(*_checked(np.asarray(ids), np.asarray(labels), scores, *extra))

        yield write


def id_heading(id_name: str) -> str:
    """Return what the column of ids is called in a file of labels: not as another column."""
    return "id" if id_name in _OTHERS else id_name


def _checked(ids: Any, labels: Any, scores: Any, *extra: Any) -> tuple[np.ndarray, ...]:
    scores = np.asarray(scores, dtype=float)
    if scores.ndim == 2:
        top = np.sort(scores, axis=1)
        scores = top[:, -1] - top[:, -2] if scores.shape[1] > 1 else top[:, 0]
    columns = (ids, labels, scores, *extra)
    shapes = [column.shape for column in columns]
    if len(set(shapes)) > 1 or labels.ndim != 1:
        what = "ids, labels and scores" if not extra else "ids, labels, scores and confidence"
        *first, last = map(str, shapes)
        raise ValueError(
            f"{what} must have one entry a row, got the shapes {', '.join(first)} and {last}."
        )
    return columns


# ---------------------------------------------------------------------- rows


def write_rows(
    path: AnyPath,
    data: Any,
    labels: Any,
    *,
    kept: Any = None,
    name: str = "cluster",
    force: bool = False,
    raw_ids: bool = False,
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
    force, raw_ids : bool, default=False
        As for `write_labels`.

    Returns
    -------
    str
        The name that the column got.

    Raises
    ------
    TableError
        If the file exists and `force` is False, cannot be written, or has another suffix.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from volmar.tables import write_rows
    >>> X = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_rows(f"{folder}/rows.csv", X, [0, 1])
    'cluster'
    """
    kind = written_kind(path)
    frame = _frame(data, as_text=kind != "parquet")
    name = free_name(name, frame.columns)
    with open_rows(path, name=name, force=force, raw_ids=raw_ids) as write:
        write(frame, labels, kept)
    return name


def free_name(name: str, columns: Iterable[Any]) -> str:
    """Return a name that none of the columns has, by a number after it where one has."""
    taken = set(map(str, columns))
    names = [name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))]
    return next(one for one in names if one not in taken)


@contextmanager
def open_rows(
    path: AnyPath, *, name: str = "cluster", force: bool = False, raw_ids: bool = False
) -> Iterator[Callable[..., None]]:
    """Open a file as `write_rows` makes it, for rows that come in blocks.

    Parameters
    ----------
    path, force, raw_ids
        As for `write_rows`.
    name : str, default="cluster"
        Name of the column of labels, which no block may have.

    Yields
    ------
    callable
        Takes a DataFrame with further rows, the labels of those that are kept, and which are
        (None is all). The file is there when the context is left.
    """
    kind = written_kind(path)
    if kind == "parquet":
        with _open_parquet(path, force) as write_table:
            yield lambda frame, labels, kept=None: write_table(
                _arrow_rows(path, _labelled(frame, name, labels, kept))
            )
        return
    with _open_text(path, force) as write_text:
        has_header = False

        def write(frame: Any, labels: Any, kept: Any = None) -> None:
            nonlocal has_header
            labelled = _labelled(frame, name, labels, kept)
            labelled = labelled if raw_ids else neutral_frame(labelled)
            for start in range(0, max(len(labelled), 1), _ROWS):
                rows = labelled.iloc[start : start + _ROWS]
                options = {"sep": _SEPARATORS[kind], "lineterminator": "\n"}
                write_text(rows.to_csv(index=False, header=not has_header, **options))
                has_header = True

        yield write


def _frame(data: Any, *, as_text: bool) -> Any:
    """Return the table as a DataFrame; its fields as they stand in a text file, if they can."""
    pd = import_pandas()
    table = as_columns(data)
    if as_text and isinstance(data, LoadedTable) and data.path is not None:
        fields = read_fields(data.path)
        if fields is not None:
            if len(fields) != table.n_rows:
                raise TableError(
                    f"{printable(data.path)} has changed since it was read; run the command again"
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
    dtype = "Int64" if labels.dtype.kind in "biu" else "object"
    column = pd.Series(pd.NA, index=frame.index, dtype=dtype)
    column[has_label] = labels
    named = frame.set_axis([str(one) for one in frame.columns], axis=1)
    return named.assign(**{name: column.array})


def _arrow_rows(path: AnyPath, frame: Any) -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]

    with _parquet_errors(path):
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


# ---------------------------------------------------------------------- columns


@contextmanager
def open_columns(
    path: AnyPath, names: Sequence[str], *, force: bool = False, raw_ids: bool = False
) -> Iterator[Callable[..., None]]:
    """Open a table for columns of rows that come in blocks.

    Parameters
    ----------
    path : path
        The file; its suffix says what it will be (`written_kind`).
    names : sequence of str
        Names of the columns.
    force, raw_ids : bool, default=False
        As for `write_labels`.

    Yields
    ------
    callable
        Takes a one-dimensional array for each column, with further rows. The file is there
        when the context is left.
    """
    kind = written_kind(path)
    if kind == "parquet":
        with _open_parquet(path, force) as write_table:
            yield lambda *columns: write_table(_arrow_columns(names, columns))
        return
    separator = _SEPARATORS[kind]
    with _open_text(path, force) as write_text:
        write_text(separator.join(_text_fields(list(names), separator, raw_ids)) + "\n")

        def write(*columns: Any) -> None:
            for start in range(0, len(columns[0]), _ROWS):
                rows = slice(start, start + _ROWS)
                fields = [_fields(np.asarray(one)[rows], separator, raw_ids) for one in columns]
                write_text("\n".join(map(separator.join, zip(*fields, strict=True))) + "\n")

        yield write


def _arrow_columns(names: Sequence[str], columns: Sequence[Any]) -> Any:
    import pyarrow as pa

    arrays = []
    for column in columns:
        values = np.asarray(column)
        if values.dtype.kind not in "biufM":
            texts = [None if _is_missing(value) else str(value) for value in values.tolist()]
            arrays.append(pa.array(texts, type=pa.string()))
        else:
            arrays.append(pa.array(values))
    return pa.table(arrays, names=list(names))


def _fields(values: np.ndarray, separator: str, raw_ids: bool) -> list[str]:
    if values.dtype.kind in "biu":
        return list(map(str, values.tolist()))
    if values.dtype.kind == "M":
        values = np.where(np.isnat(values), "", values.astype(str))
    fields = ["" if _is_missing(value) else str(value) for value in values.tolist()]
    return fields if values.dtype.kind == "f" else _text_fields(fields, separator, raw_ids)


def _is_missing(value: Any) -> bool:
    # pandas' own missing values are unequal to themselves, or have no truth value.
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )


def _text_fields(fields: list[str], separator: str, raw_ids: bool) -> list[str]:
    fields = fields if raw_ids else neutral_fields(fields)
    special = (separator, '"', "\n", "\r")
    joined = "".join(fields)
    if not any(sign in joined for sign in special):
        return fields
    return [
        '"' + field.replace('"', '""') + '"' if any(sign in field for sign in special) else field
        for field in fields
    ]


# ---------------------------------------------------------------------- files


def written_kind(path: AnyPath) -> str:
    """Return the kind of table that a file will hold, by its suffix.

    Parameters
    ----------
    path : path
        A file that will be written.

    Returns
    -------
    {"csv", "tsv", "parquet"}
        Another suffix is refused, and so is Parquet without pyarrow.

    Examples
    --------
    >>> from volmar.tables import written_kind
    >>> written_kind("labels.tsv.gz")
    'tsv'
    """
    name = Path(path).name.lower()
    suffix = Path(name).suffix
    if suffix == ".gz":
        suffix = Path(name.removesuffix(".gz")).suffix + suffix
    kind = _SUFFIXES.get(suffix)
    if kind is None:
        raise TableError(
            f"{printable(path)}: tables are not written with the suffix {shown(suffix)}; give a "
            "file that ends with .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq"
        )
    if kind == "parquet":
        _pyarrow()
    return kind


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError as error:
        raise need("pyarrow") from error
    return pa, pq


@contextmanager
def _open_text(path: AnyPath, force: bool) -> Iterator[Callable[[str], Any]]:
    """Open a text file, compressed where its name ends with .gz; yields what writes text."""
    with open_atomically(path, force=force, error=TableError) as file:
        packed: Any = nullcontext(file)
        if str(path).lower().endswith(".gz"):
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        with packed as target:
            # Bytes that were no UTF-8 are written as they came.
            yield lambda text: target.write(text.encode("utf-8", errors="surrogateescape"))


@contextmanager
def _open_parquet(path: AnyPath, force: bool) -> Iterator[Callable[[Any], None]]:
    """Open a Parquet file; yields a callable that takes pyarrow tables, all as the first."""
    _, pq = _pyarrow()
    writer = None
    with open_atomically(path, force=force, error=TableError) as file:

        def write(table: Any) -> None:
            nonlocal writer
            with _parquet_errors(path):
                if writer is None:
                    writer = pq.ParquetWriter(file, table.schema)
                # A later block may hold floats where the first has integers, say.
                writer.write_table(table.cast(writer.schema))

        try:
            yield write
        finally:
            if writer is not None:
                writer.close()


@contextmanager
def _parquet_errors(path: AnyPath) -> Iterator[None]:
    """Turn what pyarrow says of values that it cannot write into a `TableError`."""
    pa, _ = _pyarrow()
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"{printable(path)} cannot be written as Parquet: {one_line(error)}; give a file that "
            "ends with .csv"
        ) from error
