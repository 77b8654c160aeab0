"""Columns written as CSV, TSV or Parquet, at once or block by block."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from volmar._files import open_atomically
from volmar.tables.errors import TableError, need, shown

__all__ = [
    "SEPARATORS",
    "encoded",
    "open_columns",
    "open_parquet",
    "packed",
    "parquet_errors",
    "written_kind",
]

SEPARATORS = {"csv": ",", "tsv": "\t"}
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


def written_kind(path: str | os.PathLike[str]) -> str:
    """Return the kind of table that a file will hold, by its suffix.

    Parameters
    ----------
    path : path
        A file that will be written.

    Returns
    -------
    {"csv", "tsv", "parquet"}

    Raises
    ------
    TableError
        If no table is written with such a suffix.
    ImportError
        If it is Parquet and pyarrow is not installed.

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
            f"{path}: tables are not written with the suffix {shown(suffix)}; give a file that "
            "ends with .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq"
        )
    if kind == "parquet":
        _pyarrow()
    return kind


def _pyarrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet."""
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError as error:
        raise need("pyarrow") from error
    return pa, pq


@contextmanager
def open_columns(
    path: str | os.PathLike[str], names: Sequence[str], *, force: bool = False
) -> Iterator[Callable[..., None]]:
    """Open a table for columns of rows that come in blocks.

    Parameters
    ----------
    path : path
        The file; its suffix says what it will be (`written_kind`).
    names : sequence of str
        Names of the columns.
    force : bool, default=False
        Whether a file that is there may be replaced.

    Yields
    ------
    callable
        Takes a one-dimensional array for each column, with further rows. The file is there
        when the context is left.

    Raises
    ------
    TableError
        If the file is there and `force` is False, or cannot be written.
    """
    kind = written_kind(path)
    if kind == "parquet":
        with open_parquet(path, force=force) as write_table:
            yield lambda *columns: write_table(_arrow_table(names, columns))
        return
    separator = SEPARATORS[kind]
    with (
        open_atomically(path, force=force, error=TableError) as file,
        packed(path, file) as target,
    ):
        target.write(encoded(separator.join(_text_fields(list(names), separator)) + "\n"))

        def write(*columns: Any) -> None:
            for start in range(0, len(columns[0]), _ROWS):
                rows = slice(start, start + _ROWS)
                fields = [_fields(np.asarray(column)[rows], separator) for column in columns]
                lines = map(separator.join, zip(*fields, strict=True))
                target.write(encoded("\n".join(lines) + "\n"))

        yield write


def packed(path: str | os.PathLike[str], file: BinaryIO) -> Any:
    """Return the file, or a compressed one in it where the path ends with .gz."""
    if str(path).lower().endswith(".gz"):
        return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    return nullcontext(file)


def encoded(text: str) -> bytes:
    """Return text as it is written: UTF-8, and bytes that were none as they came."""
    return text.encode("utf-8", errors="surrogateescape")


@contextmanager
def open_parquet(
    path: str | os.PathLike[str], *, force: bool = False
) -> Iterator[Callable[[Any], None]]:
    """Open a Parquet file; yields a callable that takes pyarrow tables, all as the first."""
    _, pq = _pyarrow()
    writer = None
    with open_atomically(path, force=force, error=TableError) as file:

        def write(table: Any) -> None:
            nonlocal writer
            with parquet_errors(path):
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
def parquet_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what pyarrow says of values that it cannot write into a `TableError`."""
    pa, _ = _pyarrow()
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        line = " ".join(str(error).split())[:200]
        raise TableError(
            f"{path} cannot be written as Parquet: {line}; give a file that ends with .csv"
        ) from error


def _arrow_table(names: Sequence[str], columns: Sequence[Any]) -> Any:
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


def _fields(values: np.ndarray, separator: str) -> list[str]:
    """Return values as they stand in a text file."""
    if values.dtype.kind in "biu":
        return list(map(str, values.tolist()))
    if values.dtype.kind == "M":
        values = np.where(np.isnat(values), "", values.astype(str))
    fields = ["" if _is_missing(value) else str(value) for value in values.tolist()]
    return fields if values.dtype.kind == "f" else _text_fields(fields, separator)


def _is_missing(value: Any) -> bool:
    # pandas' own missing values are unequal to themselves, or have no truth value.
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )


def _text_fields(fields: list[str], separator: str) -> list[str]:
    special = (separator, '"', "\n", "\r")
    joined = "".join(fields)
    if not any(sign in joined for sign in special):
        return fields
    return [
        '"' + field.replace('"', '""') + '"' if any(sign in field for sign in special) else field
        for field in fields
    ]
