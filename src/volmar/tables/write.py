"""Write tables: labels, columns, or rows with their labels as an additional column."""

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
# A path without a suffix is usually a pipe or a device, to which text is written.
_SUFFIXES = {
    "": "csv",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "tsv",
    ".tsv.gz": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_ROWS = 1 << 16  # rows that are formatted as text at once
_LARGEST_DENSE = 1 << 30  # maximum size in bytes of a sparse table that is written as dense rows

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
    path : str or path-like
        File to write. Its suffix gives the format: .csv, .csv.gz, .tsv, .tsv.gz or .parquet.
    ids : array of shape (n,)
        Names or numbers of the rows.
    id_name : str
        Name of the first column. If another column has this name, "id" is written instead.
    labels : array of int, shape (n,)
        Cluster of each row.
    scores : array of shape (n,) or (n, k)
        Values of the decision function. For k columns, the difference between the largest and
        the second largest is written: the margin of the label.
    confidence : array of shape (n,), default=None
        Values of a last column. If None, the column is not written.
    force : bool, default=False
        Whether an existing file may be replaced.
    raw_ids : bool, default=False
        Whether CSV and TSV files get text unchanged. By default, text that a spreadsheet would
        evaluate as a formula gets an apostrophe in front, which `match_labels` ignores.

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
    """Open a file of labels, as written by `write_labels`, and write it block by block.

    Parameters
    ----------
    path, id_name, force, raw_ids
        As for `write_labels`.
    confidence, p_value : bool, default=False
        Whether the file has a column of confidences, and one of p-values.

    Yields
    ------
    callable
        Takes ids, labels, scores, confidences and p-values. The file appears on exit.
    """
    more = [name for name, has in (("confidence", confidence), ("p_value", p_value)) if has]
    names = ["id" if id_name in more else id_heading(id_name), *_OTHERS[:2], *more]
    with open_columns(path, names, force=force, raw_ids=raw_ids) as write_columns:

        def write(ids: Any, labels: Any, scores: Any, *given: Any) -> None:
            extra = [np.asarray(one, dtype=float) for one in given if one is not None]
            if len(extra) != len(more):
                columns = f"with {' and '.join(more)}" if more else "without confidence"
                raise ValueError(f"The file was opened {columns}, got {len(extra)} such columns.")
            write_columns(*_checked(np.asarray(ids), np.asarray(labels), scores, *extra))

        yield write


def id_heading(id_name: str) -> str:
    """Return the name of the id column in a file of labels, unlike that of any other column."""
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
            f"{what} must have one entry per row, got the shapes {', '.join(first)} and {last}."
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
    """Write the rows of a table with their labels as an additional column.

    If both files are text, the fields are copied unchanged: 007 stays 007.

    Parameters
    ----------
    path : str or path-like
        File to write. Its suffix gives the format: .csv, .csv.gz, .tsv, .tsv.gz or .parquet.
    data : LoadedTable, DataFrame, ndarray or sparse array
        The rows.
    labels : array of shape (n_kept,)
        Labels of the kept rows.
    kept : array of bool, shape (n,), default=None
        Mask of the rows that have a label; others get an empty field. If None, all rows have one.
    name : str, default="cluster"
        Name of the added column. A number is appended if the table has a column of that name.
    force, raw_ids : bool, default=False
        As for `write_labels`.

    Returns
    -------
    str
        Name of the added column.

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
    """Return the name, with a number appended if one of the columns has that name."""
    taken = set(map(str, columns))
    names = [name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))]
    return next(one for one in names if one not in taken)


@contextmanager
def open_rows(
    path: AnyPath, *, name: str = "cluster", force: bool = False, raw_ids: bool = False
) -> Iterator[Callable[..., None]]:
    """Open a file of rows and labels, as written by `write_rows`, and write it block by block.

    Parameters
    ----------
    path, force, raw_ids
        As for `write_rows`.
    name : str, default="cluster"
        Name of the column of labels. No block may have a column of this name.

    Yields
    ------
    callable
        Takes a DataFrame of rows, the labels of the kept rows, and the mask of the kept rows
        (None if all are kept). The file appears on exit.
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
    """Return the table as a DataFrame; with `as_text`, the unchanged fields of a text file."""
    pd = import_pandas()
    table = as_columns(data)
    if as_text and isinstance(data, LoadedTable) and data.path is not None:
        fields = read_fields(data.path)
        if fields is not None:
            if len(fields) != table.n_rows:
                raise TableError(
                    f"{printable(data.path)} has changed since it was read. Read it again."
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
                f"{table.source} is sparse. Its rows would take {size / 2**30:.1f} GiB as a dense "
                "table. Write only the labels."
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
    # Columns without values in the first block may hold text in a later one.
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
    """Open a file of named columns, and write it block by block.

    Parameters
    ----------
    path : str or path-like
        File to write. Its suffix gives the format, see `written_kind`.
    names : sequence of str
        Names of the columns.
    force, raw_ids : bool, default=False
        As for `write_labels`.

    Yields
    ------
    callable
        Takes one one-dimensional array per column, with the values of a block of rows. The
        file appears on exit.
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
    # The missing values of pandas are unequal to themselves, or cannot be used in an `if`.
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
    """Return the format in which a file will be written, from its suffix.

    Parameters
    ----------
    path : str or path-like
        File to write. Other suffixes raise `TableError`, Parquet without pyarrow `ImportError`.

    Returns
    -------
    {"csv", "tsv", "parquet"}

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
            f"{printable(path)} has the suffix {shown(suffix)}, which is not supported. Give a "
            "file that ends with .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq."
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
    """Open a text file, compressed if its name ends with .gz. Yields a function of a text."""
    with open_atomically(path, force=force, error=TableError) as file:
        packed: Any = nullcontext(file)
        if str(path).lower().endswith(".gz"):
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        with packed as target:
            # Bytes that were not UTF-8 are written unchanged.
            yield lambda text: target.write(text.encode("utf-8", errors="surrogateescape"))


@contextmanager
def _open_parquet(path: AnyPath, force: bool) -> Iterator[Callable[[Any], None]]:
    """Open a Parquet file. Yields a function of a pyarrow table, cast to the first schema."""
    _, pq = _pyarrow()
    writer = None
    with open_atomically(path, force=force, error=TableError) as file:

        def write(table: Any) -> None:
            nonlocal writer
            with _parquet_errors(path):
                if writer is None:
                    writer = pq.ParquetWriter(file, table.schema)
                # For example, a later block may hold floats and the first one integers.
                writer.write_table(table.cast(writer.schema))

        try:
            yield write
        finally:
            if writer is not None:
                writer.close()


@contextmanager
def _parquet_errors(path: AnyPath) -> Iterator[None]:
    """Turn errors of pyarrow about values that it cannot write into a `TableError`."""
    pa, _ = _pyarrow()
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"{printable(path)} cannot be written as Parquet: {one_line(error)}. Give a file that "
            "ends with .csv."
        ) from error
