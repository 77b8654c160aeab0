"""Steps of a preparation: missing values, columns that say nothing, codes, and their notes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar.tables.columns import Columns
from volmar.tables.errors import TableError, listed, shown

__all__ = [
    "code_again",
    "drop_rows",
    "few",
    "float_csr",
    "missing_notes",
    "note_huge",
    "note_left_out",
    "note_scaling",
    "range_of",
    "say_missing",
]

# Share of the values of a column that is worth a warning if they are filled in.
MANY_MISSING = 0.2


def say_missing(
    source: str, names: list[str], counts: Any, n_rows: int | None, *, fitted: bool = False
) -> str:
    """Return the message for missing values where there must be none.

    What becomes of them is told at the fit: new rows for a fitted preparation have no such choice.
    """
    which = [f"{shown(name)} {count}" for name, count in zip(names, counts, strict=True) if count]
    rows = "their rows" if n_rows is None else "1 row" if n_rows == 1 else f"{n_rows} rows"
    total = sum(int(count) for count in counts)
    remedy = (
        f"give --missing drop to leave out {rows}, --missing impute to fill them in, or --drop "
        "these columns"
    )
    if fitted:
        remedy = (
            "the model was fitted with --missing error: fill them in, or fit it again with "
            "--missing impute or --missing drop"
        )
    return (
        f"{source}: {total} {'value is' if total == 1 else 'values are'} missing (or infinite), "
        f"by column: {listed(which)}; {remedy}"
    )


def note_scaling(notes: list[str], scale: str) -> None:
    """Say how the features were scaled."""
    if scale in ("standard", "auto"):
        notes.append("features were scaled to mean 0 and standard deviation 1")
    elif scale == "minmax":
        notes.append("features were scaled to the range 0 to 1")


def range_of(X: NDArray[Any], unknown: NDArray[np.bool_] | None) -> tuple[Any, Any]:
    """Return the least and the largest known value of each column."""
    if X.size == 0:
        return np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
    if unknown is None:
        return X.min(axis=0), X.max(axis=0)
    return np.where(unknown, np.inf, X).min(axis=0), np.where(unknown, -np.inf, X).max(axis=0)


def few(items: list[Any], keep: NDArray[np.bool_]) -> list[Any]:
    """Return some of the items."""
    return [item for item, stays in zip(items, keep, strict=True) if stays]


def note_left_out(
    notes: list[str], names: list[str], keep: NDArray[np.bool_], counts: Any, n_rows: int
) -> None:
    """Say which columns were left out, because they are empty or constant."""
    gone = [(name, int(count)) for name, count in zip(names, counts, strict=True)]
    gone = few(gone, ~keep)
    if empty := [shown(name) for name, count in gone if count >= n_rows]:
        notes.append(f"columns without any value were left out: {listed(empty)}")
    if constant := [shown(name) for name, count in gone if count < n_rows]:
        notes.append(f"columns with one value only were left out: {listed(constant)}")


def drop_rows(
    table: Columns,
    X: Any,
    codes: list[NDArray[np.intp]],
    kept: NDArray[np.bool_],
    notes: list[str],
) -> tuple[Any, list[NDArray[np.intp]]]:
    """Return the kept rows, with a note; refuse where none is left."""
    n_out = int(np.count_nonzero(~kept))
    if n_out == len(kept):
        raise TableError(
            f"{table.source}: every row has a missing value, so --missing drop leaves none; give "
            "--missing impute, or --drop the columns with gaps"
        )
    if n_out == 0:
        return X, codes
    notes.append(f"{n_out:,} of {len(kept):,} rows were left out for missing values")
    return X[np.flatnonzero(kept)], [code[kept] for code in codes]


def code_again(
    codes: NDArray[np.intp], found: list[str], name: str, known: list[str], notes: list[str]
) -> NDArray[np.intp]:
    """Turn codes of a new table into those of the fit: -1 missing, len(known) never seen."""
    place = {value: k for k, value in enumerate(known)}
    moved = np.array([*(place.get(value, len(known)) for value in found), -1], dtype=np.intp)
    if new := [shown(value) for value in found if value not in place]:
        notes.append(
            f"column {shown(name)} has values that were not there at the fit, and count as "
            f"missing: {listed(new)}"
        )
    return moved[codes]


def missing_notes(
    notes: list[str], warnings: list[str], names: list[str], counts: Any, n_rows: int
) -> None:
    """Say how many missing values are filled in, and warn of columns with many of them."""
    gone = [(name, int(count)) for name, count in zip(names, counts, strict=True) if count]
    total = sum(count for _, count in gone)
    which = listed(f"{shown(name)} {count:,}" for name, count in gone)
    notes.append(
        f"{total:,} missing value{'s were' if total > 1 else ' was'} filled in from similar rows, "
        f"by column: {which}"
    )
    many = [(name, count / n_rows) for name, count in gone if count > MANY_MISSING * n_rows]
    if many:
        worst = listed(f"{shown(name)} {100 * share:.0f} %" for name, share in many)
        warnings.append(
            "many values are missing, and clusters may follow those that were filled in: "
            f"{worst}; --drop these columns, or compare with --missing drop"
        )


def float_csr(X: Any) -> Any:
    """Return a sparse array as CSR in float64."""
    return sp.csr_array(X).astype(np.float64, copy=False)


def note_huge(notes: list[str], table: Columns, names: list[str], X: NDArray[Any]) -> None:
    """Say which columns of whole numbers are too large for float64."""
    if not table.is_frame or not names:
        return
    whole = [k for k, name in enumerate(names) if table.data[_key(table, name)].dtype.kind in "iu"]
    huge = [names[k] for k in whole if np.abs(X[:, k]).max() > 2.0**53]
    if huge:
        notes.append(
            f"whole numbers above 2^53 lose their last digits: {listed(map(shown, huge))}; "
            "if they are ids, give --id or --drop"
        )


def _key(table: Columns, name: str) -> Any:
    return table.data.columns[table.names.index(name)]
