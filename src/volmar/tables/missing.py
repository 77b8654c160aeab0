"""Rows with missing values refused or left out, in dense and in sparse tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.columns import Columns
from volmar.tables.errors import TableError
from volmar.tables.notes import missing_refused, note_missing

__all__ = ["fits_dense", "note_dropped", "without_missing", "without_missing_sparse"]

_LARGEST_DENSE = 1 << 30  # bytes a sparse table may take when it is made dense

Codes = list[NDArray[np.intp]]


def without_missing(
    table: Columns,
    names: list[str],
    X: NDArray[Any],
    codes: Codes,
    missing: str,
    notes: list[str],
    warnings: list[str] | None = None,
) -> tuple[NDArray[Any], Codes, NDArray[np.bool_]]:
    """Return numbers and codes of the kept rows, and which rows these are.

    NaN and the code -1 are missing. Values to be filled in are counted here, and filled in later.
    `warnings` is None for new rows of a fitted preparation.
    """
    unknown = np.isnan(X)
    kept = np.ones(table.n_rows, dtype=bool)
    counts = [*unknown.sum(axis=0), *(np.count_nonzero(code < 0) for code in codes)]
    if not any(counts):
        return X, codes, kept
    if missing == "error":
        # Rows are counted where all gaps are among the numbers, and no column is all gaps.
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
    """Return sparse rows without missing values, which are not filled in, and the kept rows."""
    kept = np.ones(table.n_rows, dtype=bool)
    wrong = ~np.isfinite(X.data)
    if not wrong.any():
        return X, kept
    if missing in ("impute", "indicator"):
        raise TableError(
            f"{table.source} is sparse and has {wrong.sum()} missing values, which are not "
            "filled in a sparse table; give missing='drop', or scale='standard'"
        )
    kept[np.repeat(np.arange(table.n_rows), np.diff(X.indptr))[wrong]] = False
    if missing == "error":
        counts = np.bincount(X.indices[wrong], minlength=len(names))
        n_rows = int((~kept).sum())
        raise TableError(missing_refused(table.source, names, counts, n_rows, fitted=fitted))
    note_dropped(table.source, kept, notes)
    return X[np.flatnonzero(kept)], kept


def fits_dense(table: Columns, scale: str, notes: list[str]) -> bool:
    """Tell whether a sparse table is scaled, in a dense copy; refuse one that is too large."""
    size = 8 * table.n_rows * len(table.names)
    if size <= _LARGEST_DENSE:
        notes.append(
            "the table is sparse and was made dense for scaling; scale='none' keeps it so"
        )
        return True
    if scale != "auto":
        raise TableError(
            f"{table.source} is sparse, and scaling it would take {size / 2**30:.1f} GiB; give "
            "scale='none'"
        )
    notes.append(
        f"the table is sparse and was not scaled, which would take {size / 2**30:.1f} GiB"
    )
    return False


def note_dropped(source: str, kept: NDArray[np.bool_], notes: list[str]) -> None:
    """Note how many rows are left out; refuse where none is left."""
    n_out = int(np.count_nonzero(~kept))
    if n_out == len(kept):
        raise TableError(
            f"{source}: every row has a missing value, so missing='drop' leaves none; give "
            "missing='impute', or name the columns with missing values in drop="
        )
    if n_out:
        notes.append(f"{n_out:,} of {len(kept):,} rows were left out for missing values")
