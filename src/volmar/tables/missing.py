"""Missing values in dense and sparse tables: raise an error, or leave out their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.columns import Columns
from volmar.tables.errors import TableError
from volmar.tables.notes import missing_refused, note_missing

__all__ = [
    "fits_dense",
    "note_dropped",
    "without_infinite",
    "without_missing",
    "without_missing_sparse",
]

_LARGEST_DENSE = 1 << 30  # maximum size in bytes of a sparse table that is made dense

Codes = list[NDArray[np.intp]]


def without_infinite(X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return X with NaN for infinite values, and the mask of the rows that had one."""
    if X.size == 0 or np.isfinite(X.sum()):
        return X, np.zeros(len(X), dtype=bool)
    infinite = np.isinf(X)
    return np.where(infinite, np.nan, X) if infinite.any() else X, infinite.any(axis=1)


def without_missing(
    table: Columns,
    names: list[str],
    X: NDArray[Any],
    codes: Codes,
    missing: str,
    notes: list[str],
    warnings: list[str] | None = None,
) -> tuple[NDArray[Any], Codes, NDArray[np.bool_]]:
    """Return the numbers and codes of the kept rows, and the mask of these rows.

    NaN and the code -1 are missing values. If they will be filled in, they are only counted here.
    `warnings` is None for new rows of a fitted preparation.
    """
    unknown = np.isnan(X)
    kept = np.ones(table.n_rows, dtype=bool)
    counts = [*unknown.sum(axis=0), *(np.count_nonzero(code < 0) for code in codes)]
    if not any(counts):
        return X, codes, kept
    if missing == "error":
        # Rows are counted if only numbers are missing, and no column is entirely missing.
        countable = sum(counts) == int(unknown.sum()) and max(counts) < table.n_rows
        n_rows = int(unknown.any(axis=1).sum()) if countable else None
        fitted = warnings is None
        raise TableError(missing_refused(table.source, names, counts, n_rows, fitted=fitted))
    if missing != "drop":
        note_missing(notes, [] if warnings is None else warnings, names, counts, table.n_rows)
        return X, codes, kept
    kept = ~unknown.any(axis=1)
    for code in codes:
        kept &= code >= 0
    note_dropped(table.source, kept, notes)
    return (X, codes, kept) if kept.all() else (X[kept], [code[kept] for code in codes], kept)


def without_missing_sparse(
    table: Columns, X: Any, names: list[str], missing: str, notes: list[str], *, fitted: bool
) -> tuple[Any, NDArray[np.bool_]]:
    """Return the sparse rows without missing values, and their mask. Nothing is filled in."""
    kept = np.ones(table.n_rows, dtype=bool)
    wrong = ~np.isfinite(X.data)
    if not wrong.any():
        return X, kept
    if missing in ("impute", "indicator"):
        raise TableError(
            f"{table.source} is sparse and has {wrong.sum()} missing values, which cannot be "
            "filled in. Give missing='drop', or scale='standard' to make the table dense."
        )
    kept[np.repeat(np.arange(table.n_rows), np.diff(X.indptr))[wrong]] = False
    if missing == "error":
        counts = np.bincount(X.indices[wrong], minlength=len(names))
        n_rows = int((~kept).sum())
        raise TableError(missing_refused(table.source, names, counts, n_rows, fitted=fitted))
    note_dropped(table.source, kept, notes)
    return X[np.flatnonzero(kept)], kept


def fits_dense(table: Columns, scale: str, notes: list[str]) -> bool:
    """Return whether a sparse table fits into memory as a dense table, to be scaled.

    If it does not, `scale="auto"` leaves it unscaled, and other scales raise `TableError`.
    """
    size = 8 * table.n_rows * len(table.names)
    if size <= _LARGEST_DENSE:
        notes.append("the sparse table was made dense to be scaled; scale='none' keeps it sparse")
        return True
    if scale != "auto":
        raise TableError(
            f"{table.source} is sparse, and would take {size / 2**30:.1f} GiB as a dense table "
            "for scaling. Give scale='none'."
        )
    notes.append(
        f"the sparse table was not scaled, because this would take {size / 2**30:.1f} GiB"
    )
    return False


def note_dropped(source: str, kept: NDArray[np.bool_], notes: list[str]) -> None:
    """Note the number of rows left out. Raise `TableError` if no row is left."""
    n_out = int(np.count_nonzero(~kept))
    if n_out == len(kept):
        raise TableError(
            f"{source}: every row has a missing value, so missing='drop' leaves no rows. Give "
            "missing='impute', or name the columns with missing values in drop=."
        )
    if n_out:
        notes.append(f"{n_out:,} of {len(kept):,} rows were left out because of missing values")
