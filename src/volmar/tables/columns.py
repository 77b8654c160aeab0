"""Columns of any table as numbers or as categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar.tables.dates import as_dates, as_years
from volmar.tables.errors import TableError, nearest, shown
from volmar.tables.frames import as_pandas
from volmar.tables.kinds import ColumnKind, kind_of
from volmar.tables.read import LoadedTable

__all__ = ["Columns", "as_columns", "refuse_duplicates"]

_EXACT = 2.0**53


@dataclass(frozen=True)
class Columns:
    """A table with named columns.

    Attributes
    ----------
    source : str
        What messages call the table.
    names : list of str
        Names of the columns.
    data : DataFrame, ndarray or csr_array
        The values.
    named : bool
        Whether the names come from the table; those of a bare array are x0, x1, ...
    notes : list of str
        What reading it had to decide.
    """

    source: str
    names: list[str]
    data: Any
    named: bool
    notes: list[str]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.data.shape[0])

    @property
    def is_sparse(self) -> bool:
        """Whether the values are in a sparse array."""
        return sp.issparse(self.data)

    @property
    def is_frame(self) -> bool:
        """Whether the values are in a DataFrame."""
        return hasattr(self.data, "iloc")

    def find(self, wanted: list[str], option: str) -> list[int]:
        """Return the places of columns that an option names."""
        place = {name: j for j, name in enumerate(self.names)}
        for name in wanted:
            if name not in place:
                raise TableError(
                    f"{self.source} has no column {shown(name)}, which {option} names; "
                    f"{nearest(name, self.names)}"
                )
        return [place[name] for name in wanted]

    def kind(self, j: int, given: str | None = None) -> ColumnKind:
        """Return the kind of a column, as given or guessed; that of an array's is numeric."""
        if not self.is_frame:
            return ColumnKind(given or "numeric")
        return kind_of(self.source, self.names[j], self.data.iloc[:, j], given)

    def numbers(
        self, places: list[int], kinds: list[ColumnKind], notes: list[str]
    ) -> NDArray[np.float64]:
        """Return columns as float64, NaN for missing; may share memory with the table.

        Numbers are themselves, ordinal values their places, dates years with a fraction. What is
        none of these is missing, with a note.
        """
        every = places == list(range(len(self.names)))
        if not self.is_frame:
            block = self.data if every else self.data[:, places]
            return block.toarray() if self.is_sparse else np.asarray(block, dtype=np.float64)
        chosen = self.data if every else self.data.iloc[:, places]
        plain = all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in chosen.dtypes)
        if plain and all(kind.order is None for kind in kinds):
            return chosen.to_numpy(dtype=np.float64)
        block = np.empty((self.n_rows, len(places)), order="F")
        for k, (j, kind) in enumerate(zip(places, kinds, strict=True)):
            block[:, k] = self._as_numbers(j, kind, notes)
        return block

    def _as_numbers(self, j: int, kind: ColumnKind, notes: list[str]) -> NDArray[np.float64]:
        import pandas as pd

        series = self.data.iloc[:, j]
        if kind.kind == "date":
            values = as_years(as_dates(series, kind.layout))
        elif kind.order is not None:
            place = {word: k for k, word in enumerate(kind.order)}
            values = series.astype(object).map(lambda value: place.get(_word(value), np.nan))
            values = values.to_numpy(dtype=np.float64, na_value=np.nan)
        elif pd.api.types.is_numeric_dtype(series.dtype):
            return series.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            parsed = pd.to_numeric(series.astype(object), errors="coerce")
            values = parsed.to_numpy(dtype=np.float64, na_value=np.nan)
        known = ~series.isna().to_numpy()
        wrong = np.flatnonzero(np.isnan(values) & known)
        if wrong.size:
            what = {"date": "dates", "ordinal": "values of its scale"}.get(kind.kind, "numbers")
            first = f"{shown(series.iloc[wrong[0]])} in row {wrong[0]}"
            if 2 * wrong.size > np.count_nonzero(known):
                raise TableError(
                    f"{self.source}: column {shown(self.names[j])} must hold {what} as in the "
                    f"fitted table, got {first}; correct this column"
                )
            notes.append(
                f"column {shown(self.names[j])} holds {what} and {wrong.size:,} other "
                f"value{'s' if wrong.size > 1 else ''}, the first {first}: taken as missing"
            )
        return values

    def is_missing(self, j: int) -> NDArray[np.bool_]:
        """Tell which rows have no value in a column."""
        if self.is_frame:
            return np.asarray(self.data.iloc[:, j].isna())
        column = self.data[:, [j]]
        values = (column.toarray() if self.is_sparse else np.asarray(column)).ravel()
        return ~np.isfinite(values)

    def categories(self, j: int) -> tuple[NDArray[np.intp], list[str]]:
        """Return a column as codes, -1 for missing, and its different values as sorted text."""
        if not self.is_frame:
            column = self.data[:, [j]]
            values = (column.toarray() if self.is_sparse else np.asarray(column)).ravel()
            return self._coded(values)
        return self._coded(self.data.iloc[:, j])

    def _coded(self, series: Any) -> tuple[NDArray[np.intp], list[str]]:
        import pandas as pd

        codes, values = pd.factorize(series)
        words = [_word(value) for value in values]
        found = sorted(set(words))
        place = {word: k for k, word in enumerate(found)}
        moved = np.array([*(place[word] for word in words), -1], dtype=np.intp)
        return moved[codes], found

    def row_names(self) -> tuple[NDArray[Any], str]:
        """Return the index of a DataFrame, or row numbers from 0, and what they are called."""
        index = self.data.index if self.is_frame else None
        # What counts rows in any way is a row number: rows may have been taken out.
        if index is None or index.nlevels > 1 or index.dtype.kind in "iu":
            return np.arange(self.n_rows), "row"
        return index.to_numpy(), "row" if index.name is None else str(index.name)

    def ids(self, name: str) -> NDArray[Any]:
        """Return the column that names the rows."""
        (j,) = self.find([name], "--id")
        if not self.is_frame:
            column = self.data[:, [j]]
            values = (column.toarray() if self.is_sparse else np.asarray(column)).ravel()
        else:
            values = self.data.iloc[:, j].to_numpy()
        if values.dtype.kind == "f" and _whole(values):
            # Whole numbers became floats because one was missing, or the array has one dtype.
            known = np.isfinite(values)
            whole = np.where(known, values, 0).astype(np.int64)
            if known.all():
                return whole
            named = whole.astype(object)
            named[~known] = None
            return named
        return values


def as_columns(data: Any) -> Columns:
    """Return the columns of a `LoadedTable`, a DataFrame, an ndarray or a sparse array."""
    source, names, notes = "the table", None, []
    data = as_pandas(data)
    if isinstance(data, LoadedTable):
        source, names, notes, data = data.name, data.feature_names, data.notes, data.data
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        names = [str(name) for name in data.columns]
        refuse_duplicates(source, names)
        return Columns(source, names, data, True, notes)
    if sp.issparse(data):
        data = sp.csr_array(data)
    else:
        data = np.asarray(data)
        if data.dtype.kind not in "biuf":
            raise TableError(
                f"{source} holds values of dtype {data.dtype}, and numbers are needed; give a "
                "DataFrame if some columns are text"
            )
    if data.ndim != 2:
        raise TableError(f"{source} has shape {data.shape}, and rows x columns are needed")
    named = names is not None and len(names) == data.shape[1]
    if not named:
        names = [f"x{j}" for j in range(data.shape[1])]
    return Columns(source, list(names or []), data, named, notes)


def refuse_duplicates(source: str, names: list[str]) -> None:
    """Refuse two columns of one name."""
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise TableError(
            f"{source}: two columns are called {shown(twice)}; rename one of them in the file"
        )


def _word(value: Any) -> str:
    # 1.0 is what a whole number becomes in a column with missing values.
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _whole(values: NDArray[Any]) -> bool:
    known = values[np.isfinite(values)]
    return bool(known.size and (np.abs(known) < _EXACT).all() and (known == np.rint(known)).all())
