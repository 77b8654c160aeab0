"""Conversion of the columns of a table to numerical features: numbers, ranks, indicators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._checks import as_float
from volmar.metrics.contingency import is_missing

__all__ = [
    "MAX_LEVELS",
    "CodedColumn",
    "DatedColumn",
    "Features",
    "as_features",
    "n_rows_of",
    "table_columns",
]

# Maximum number of levels of a column that are compared, the most frequent ones.
MAX_LEVELS = 50
MISSING = "missing"


MILLISECONDS = 86_400_000.0


class CodedColumn(NamedTuple):
    """A column of levels: their indices in `values`, -1 for missing values."""

    codes: NDArray
    values: list[Any]
    ordered: bool = False


class DatedColumn(NamedTuple):
    """A column of dates, as days since 1970-01-01 (UTC), NaN for missing values."""

    days: NDArray


@dataclass(frozen=True)
class Features:
    """Columns as numbers, of shape (n, p).

    A column of numbers, ranks or dates (days since 1970-01-01) is one feature. A column of L
    levels has L features with values 0 and 1, or only one if L = 2, because the other would be
    redundant. A column with missing values has a further feature that is 1 for missing values; its
    other features are NaN there.

    Each feature has the name of its column, its kind ("number", "date", "ordinal", "share" or
    "missing") and the level of a share, otherwise "". `orders` has the levels of the ordinal
    columns from low to high. `notes` are remarks on columns that are left out or used in part.
    """

    values: Any
    columns: list[str]
    kinds: list[str]
    levels: list[str]
    orders: dict[str, list[str]]
    notes: list[str]


def n_rows_of(X: Any) -> int:
    """Return the number of rows of a table; raise an error if it is not two-dimensional."""
    shape = getattr(X, "shape", None)
    if shape is None:
        try:
            shape = np.shape(X)
        except ValueError:  # rows of different lengths
            shape = (len(X),)
    if len(shape) != 2:
        raise ValueError(
            f"X must have rows and columns, got shape {tuple(shape)}. Reshape a single column "
            "with X.reshape(-1, 1)."
        )
    return int(shape[0])


def _as_float64(values: NDArray) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # long doubles; infinity counts as missing
        return values.astype(np.float64)


def as_features(X: Any, names: list[str] | None) -> Features:
    """Return the features of an array, a CSR matrix or a DataFrame (pandas or polars)."""
    if sparse.issparse(X):
        return _sparse_features(X, names)
    if not _is_frame(X):
        X = np.asarray(X)
        if X.dtype.kind in "iuf":
            taken = _names_of(X, names)
            values, missing = _finite(_as_float64(X))
            d = X.shape[1]
            plain = Features(values, taken, ["number"] * d, [""] * d, {}, [])
            return plain if missing is None else _with_missing(plain, missing)
    taken, columns = table_columns(X, names)
    return _join(list(columns), taken)


def table_columns(
    X: Any, names: list[str] | None
) -> tuple[list[str], Iterator[NDArray | CodedColumn | DatedColumn]]:
    """Return the names of the columns of a table, and an iterator over its columns.

    Columns of numbers are float64 with NaN for missing values. All others are dates or levels.
    """
    if sparse.issparse(X):
        X = sparse.csc_array(X)
        taken = _names_of(X, names)
        return taken, (X[:, [j]].toarray().ravel().astype(np.float64) for j in range(X.shape[1]))
    if _is_frame(X):
        taken = _names_of(X, names)
        return taken, (_frame_column(X, j, name) for j, name in enumerate(taken))
    X = np.asarray(X)
    taken = _names_of(X, names)
    return taken, (_plain_column(X[:, j], name) for j, name in enumerate(taken))


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def _names_of(X: Any, names: list[str] | None) -> list[str]:
    found = X.columns if _is_frame(X) else [f"x{j}" for j in range(X.shape[1])]
    if names is not None and len(names) != len(found):
        raise ValueError(
            f"feature_names must have one name for each of the {len(found)} columns of X, got "
            f"{len(names)} names."
        )
    return [str(name) for name in (found if names is None else names)]


def _finite(values: NDArray) -> tuple[NDArray, NDArray | None]:
    """Return values with NaN for infinities, and a mask of missing values (None if none)."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return values, None
    missing = ~np.isfinite(values)
    if not missing.any():
        return values, None
    return np.where(missing, np.nan, values), missing


def _with_missing(found: Features, missing: NDArray) -> Features:
    """Add a feature for each column with missing values."""
    some = np.flatnonzero(missing.any(axis=0))
    return Features(
        np.hstack([found.values, missing[:, some].astype(np.float64)]),
        found.columns + [found.columns[j] for j in some],
        found.kinds + [MISSING] * some.size,
        found.levels + [""] * some.size,
        found.orders,
        found.notes,
    )


def _sparse_features(X: Any, names: list[str] | None) -> Features:
    if X.dtype.kind == "c":
        raise TypeError(
            "X holds complex numbers, which have no order. Pass their real and imaginary parts as "
            "separate columns."
        )
    X = sparse.csr_array(X).astype(np.float64)
    d = X.shape[1]
    taken = _names_of(X, names)
    wrong = int(np.count_nonzero(~np.isfinite(X.data)))
    if wrong:
        raise ValueError(
            f"X is sparse and has {wrong} missing or infinite values, which are not supported. "
            "Remove them, or pass a dense array."
        )
    return Features(X, taken, ["number"] * d, [""] * d, {}, [])


def _frame_column(X: Any, j: int, name: str) -> NDArray | CodedColumn | DatedColumn:
    if not hasattr(X, "iloc"):  # polars
        series = X[:, j]
        if series.dtype.is_numeric():
            return series.cast(float).fill_null(float("nan")).to_numpy()
        # Dates, durations, booleans and text as Python objects.
        return _plain_column(np.array([*series.to_list(), None], dtype=object)[:-1], name)
    import pandas as pd

    series = X.iloc[:, j]
    types = pd.api.types
    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return CodedColumn(
            series.cat.codes.to_numpy(), list(dtype.categories), bool(dtype.ordered)
        )
    if isinstance(dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
        dtype = series.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert(None)
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return _plain_column(series.to_numpy(), name)
    if types.is_numeric_dtype(dtype) and dtype.kind in "iuf":
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if types.is_bool_dtype(dtype) or isinstance(dtype, pd.StringDtype):
        codes, values = pd.factorize(series)
        return CodedColumn(codes, list(values))
    return _plain_column(series.to_numpy(), name)


def _plain_column(column: NDArray, name: str) -> NDArray | CodedColumn | DatedColumn:
    """Return a column as numbers or dates, or as codes if it holds anything else.

    Durations are converted to numbers of days.
    """
    kind = column.dtype.kind
    if kind in "iuf":
        return _as_float64(column)
    if kind in "mM":
        days = _in_days(column)
        return days if kind == "m" else DatedColumn(days)
    if kind == "c":
        raise TypeError(
            f"X: column {name!r} holds complex numbers, which have no order. Pass their real and "
            "imaginary parts as two columns."
        )
    place: dict[Any, int] = {}
    codes = np.empty(column.size, dtype=np.int64)
    for i, value in enumerate(column.tolist()):
        if isinstance(value, list | dict | set | np.ndarray):
            raise TypeError(
                f"X: column {name!r} holds a {type(value).__name__} in row {i}, but single values "
                "are required. Leave the column out, or split it into several columns."
            )
        codes[i] = -1 if is_missing(value) else place.setdefault(value, len(place))
    if place and all(_is_number(value) for value in place):
        numbers = np.array([*map(as_float, place), np.nan])
        return numbers[codes]
    if place and all(isinstance(value, date) for value in place):  # a datetime is a date
        known = np.array([_naive(value) for value in place], dtype="M8[us]")
        return DatedColumn(np.append(_in_days(known), np.nan)[codes])
    if place and all(isinstance(value, timedelta) for value in place):
        return np.array([*(value / timedelta(days=1) for value in place), np.nan])[codes]
    return CodedColumn(codes, list(place))


def _in_days(times: NDArray) -> NDArray:
    """Return dates or durations as days, NaN for missing values."""
    unit = times.dtype.str[1]
    days = times.astype(f"{unit}8[ms]").astype(np.int64) / MILLISECONDS
    return np.where(np.isnat(times), np.nan, days)


def _naive(value: Any) -> Any:
    """Return a date in UTC without its time zone, as numpy expects it."""
    zone = getattr(value, "tzinfo", None)
    return value if zone is None else value.astimezone(UTC).replace(tzinfo=None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal | np.number) and not isinstance(value, bool)


def _join(columns: list[NDArray | CodedColumn | DatedColumn], names: list[str]) -> Features:
    """Return the features of all columns."""
    found: list[tuple[NDArray, str, str, str]] = []
    orders: dict[str, list[str]] = {}
    notes: list[str] = []
    for name, column in zip(names, columns, strict=True):
        if isinstance(column, DatedColumn):
            values, missing = _finite(column.days)
            found.append((values, name, "date", ""))
        elif not isinstance(column, CodedColumn):
            values, missing = _finite(column)
            found.append((values, name, "number", ""))
        else:
            missing = column.codes < 0
            if column.ordered:
                orders[name] = [str(value) for value in column.values]
                found.append((np.where(missing, np.nan, column.codes), name, "ordinal", ""))
            else:
                for level, is_there in _levels(column, name, notes):
                    found.append((np.where(missing, np.nan, is_there), name, "share", level))
        if missing is not None and missing.any():
            found.append((missing.astype(np.float64), name, MISSING, ""))
    if not found:
        raise ValueError("X has no column that can be compared. Pass at least one such column.")
    blocks, of, kinds, levels = map(list, zip(*found, strict=True))
    return Features(np.column_stack(blocks), of, kinds, levels, orders, notes)


def _levels(column: CodedColumn, name: str, notes: list[str]) -> Iterator[tuple[str, NDArray]]:
    """Yield the most frequent levels, each with a mask of its rows."""
    known = column.codes[column.codes >= 0]
    counts = np.bincount(known, minlength=len(column.values))
    texts = [str(value) for value in column.values]
    if np.count_nonzero(counts) == known.size > 2:
        notes.append(f"column {name!r} has a different value in every row and is not compared")
        return
    # Most frequent first, ties by name. Of two levels only one is used: True, or the rarer one.
    ranked = sorted(np.flatnonzero(counts), key=lambda i: (-counts[i], texts[i]))
    if {texts[i] for i in ranked} == {"True", "False"}:
        ranked.sort(key=lambda i: texts[i])
    if len(ranked) > MAX_LEVELS:
        notes.append(
            f"only the {MAX_LEVELS} most frequent of the {len(ranked)} values of column {name!r} "
            "are compared"
        )
    for i in ranked[1:] if len(ranked) == 2 else ranked[:MAX_LEVELS]:
        yield texts[i], column.codes == i
