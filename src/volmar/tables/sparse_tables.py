"""Sparse tables: whether they are scaled, their missing values and their last columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.columns import Columns
from volmar.tables.errors import TableError
from volmar.tables.steps import drop_rows, say_missing

__all__ = ["fits_dense", "padded", "without_missing"]

_LARGEST_DENSE = 1 << 30  # bytes a sparse table may take when it is made dense


def fits_dense(table: Columns, scale: str, notes: list[str]) -> bool:
    """Tell whether a sparse table is scaled, in a dense copy; refuse one that is too large."""
    size = 8 * table.n_rows * len(table.names)
    if size <= _LARGEST_DENSE:
        notes.append(
            "the table is sparse and was made dense for scaling; --scale none keeps it so"
        )
        return True
    if scale != "auto":
        raise TableError(
            f"{table.source} is sparse, and scaling it would take {size / 2**30:.1f} GiB; give "
            "--scale none"
        )
    notes.append(
        f"the table is sparse and was not scaled, which would take {size / 2**30:.1f} GiB"
    )
    return False


def without_missing(
    table: Columns,
    X: Any,
    names: list[str],
    missing: str,
    notes: list[str],
    *,
    fitted: bool = False,
) -> tuple[Any, NDArray[np.bool_]]:
    """Return sparse rows without missing values, and which rows are kept.

    Parameters
    ----------
    table : Columns
        The table, for messages.
    X : csr_array of shape (n, d)
        The columns in use.
    names : list of str
        Their names.
    missing : str
        How to handle missing values; they are not filled in.
    notes : list of str
        A line is added where rows are left out.
    fitted : bool, default=False
        Whether these are new rows for a fitted preparation.
    """
    kept = np.ones(table.n_rows, dtype=bool)
    wrong = ~np.isfinite(X.data)
    if not wrong.any():
        return X, kept
    if missing in ("impute", "indicator"):
        raise TableError(
            f"{table.source} is sparse and has {wrong.sum()} missing values, which are not "
            "filled in a sparse table; give --missing drop, or --scale standard"
        )
    rows = np.repeat(np.arange(table.n_rows), np.diff(X.indptr))[wrong]
    kept[rows] = False
    if missing == "error":
        counts = np.bincount(X.indices[wrong], minlength=len(names))
        n_rows = int((~kept).sum())
        raise TableError(say_missing(table.source, names, counts, n_rows, fitted=fitted))
    X, _ = drop_rows(table, X, [], kept, notes)
    return X, kept


def padded(table: Columns, names: list[str]) -> Columns:
    """Add the last columns that a sparse file need not mention: they are zero."""
    n, d = table.data.shape
    if table.named or d >= len(names):
        return table
    data = table.data.copy()
    data.resize((n, len(names)))
    return Columns(table.source, list(names), data, True, table.notes)
