"""Tables of any library, their columns as numbers or categories, and which of them are used."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar._input import checking
from volmar.tables.dates import as_dates, as_years
from volmar.tables.errors import (
    TableError,
    import_pandas,
    nearest,
    one_line,
    quoted_names,
    refuse_duplicates,
    shown,
)
from volmar.tables.kinds import ColumnKind, kind_of
from volmar.tables.numbers import as_numbers, is_real
from volmar.tables.read import LoadedTable, read_table

__all__ = ["Columns", "as_columns", "as_pandas", "check_table", "chosen_places", "fitted_places"]

_EXACT = 2.0**53
_NUMERIC = ColumnKind("numeric")


@dataclass(frozen=True)
class Columns:
    """A table with named columns; `notes` is what reading it had to decide."""

    source: str  # what messages call the table
    names: list[str]
    data: Any  # a DataFrame, ndarray or csr_array
    named: bool  # whether the names come from the table; those of a bare array are x0, x1, ...
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

    def find(self, wanted: list[str], argument: str) -> list[int]:
        """Return the places of columns that an argument names."""
        if not wanted:
            return []
        place = {name: j for j, name in enumerate(self.names)}
        for name in wanted:
            if name not in place:
                raise TableError(
                    f"{self.source} has no column {shown(name)}, which {argument} names; "
                    f"{nearest(name, self.names)}"
                )
        return [place[name] for name in wanted]

    def padded(self, names: list[str]) -> Columns:
        """Return a sparse table with the last columns, zero, that a file need not mention."""
        n, d = self.data.shape
        if self.named or d >= len(names):
            return self
        data = self.data.copy()
        data.resize((n, len(names)))
        return Columns(self.source, list(names), data, True, self.notes)

    def csr(self, places: list[int]) -> Any:
        """Return columns of a sparse table in float64."""
        every = len(places) == len(self.names)
        columns = self.data if every else self.data[:, places]
        return sp.csr_array(columns).astype(np.float64, copy=False)

    def values(self, j: int) -> NDArray[Any]:
        """Return a column as an array."""
        if self.is_frame:
            return np.asarray(self.data.iloc[:, j].to_numpy())
        column = self.data[:, [j]]
        return np.asarray(column.toarray() if self.is_sparse else column).ravel()

    def kinds(self, places: list[int], given: dict[str, str]) -> list[ColumnKind]:
        """Return the kinds of columns, as given or guessed; those of an array are numeric."""
        names = [self.names[j] for j in places]
        if not self.is_frame:
            return [ColumnKind(given[name]) if name in given else _NUMERIC for name in names]
        # Each column once: by its place takes pandas ten times as long.
        columns = dict(zip(self.names, (column for _, column in self.data.items()), strict=True))
        return [kind_of(self.source, name, columns[name], given.get(name)) for name in names]

    def numbers(
        self, places: list[int], kinds: list[ColumnKind], notes: list[str]
    ) -> NDArray[np.float64]:
        """Return columns as float64, NaN for missing and infinite values.

        Numbers are themselves, ordinal values their places, dates years with a fraction. What is
        none of these is missing, with a note. The result may share memory with the table.
        """
        X = self._as_block(places, kinds, notes)
        if X.size == 0 or np.isfinite(X.sum()):
            return X
        infinite = np.isinf(X)
        return np.where(infinite, np.nan, X) if infinite.any() else X

    def _as_block(
        self, places: list[int], kinds: list[ColumnKind], notes: list[str]
    ) -> NDArray[np.float64]:
        every = places == list(range(len(self.names)))
        if not self.is_frame:
            for j, kind in zip(places, kinds, strict=True):
                if kind.order is not None or kind.kind == "date":
                    what = "dates" if kind.kind == "date" else "words"
                    raise TableError(
                        f"{self.source}: column {shown(self.names[j])} holds numbers, and {what} "
                        "in the fitted table; give a table with names and values as that one"
                    )
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
        series = self.data.iloc[:, j]
        if kind.kind == "date":
            values = as_years(as_dates(series, kind.layout))
        elif kind.order is not None:
            place = {word: k for k, word in enumerate(kind.order)}
            values = series.astype(object).map(lambda value: place.get(_word(value), np.nan))
            values = values.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = as_numbers(series)
            if is_real(series.dtype):
                return values
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
        return ~np.isfinite(self.values(j))

    def categories(self, j: int) -> tuple[NDArray[np.intp], list[str]]:
        """Return a column as codes, -1 for missing, and its different values as sorted text."""
        import pandas as pd

        column = self.data.iloc[:, j] if self.is_frame else self.values(j)
        try:
            codes, values = pd.factorize(column)
        except TypeError as error:
            raise TableError(
                f"{self.source}: column {shown(self.names[j])} must hold categories, and holds "
                "lists or other values that are no single text; name it in drop="
            ) from error
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
        (j,) = self.find([name], "id_column=")
        values = self.values(j)
        if values.dtype.kind != "f":
            return values
        known = np.isfinite(values)
        whole = values[known]
        if not whole.size or (np.abs(whole) >= _EXACT).any() or (whole != np.rint(whole)).any():
            return values
        # Whole numbers became floats because one was missing, or the array has one dtype.
        if known.all():
            return whole.astype(np.int64)
        named = np.full(len(values), None, dtype=object)
        named[known] = whole.astype(np.int64)
        return named


def as_pandas(data: Any) -> Any:
    """Return a table as `Preparation` takes it.

    Parameters
    ----------
    data : DataFrame, pyarrow Table, array, sparse array, LoadedTable, str or path
        DataFrames of pandas and polars; a str or path is read by `read_table`.

    Returns
    -------
    DataFrame of pandas, ndarray, sparse array or LoadedTable

    Raises
    ------
    TableError
        For a dask collection, whose rows are not here.
    """
    if hasattr(data, "to_frame") and not hasattr(data, "columns"):  # a Series
        data = data.to_frame()
    if isinstance(data, LoadedTable) or sp.issparse(data) or hasattr(data, "iloc"):
        if hasattr(data, "compute"):
            raise TableError(
                "data is a dask DataFrame, whose rows are in blocks; give data.compute() if they "
                "fit in memory, or fit a clusterer such as MSPC to it"
            )
        return data
    if isinstance(data, (str, os.PathLike)):
        return read_table(os.fspath(data))
    home = type(data).__module__.partition(".")[0]
    if home not in ("polars", "pyarrow"):
        return data
    pd = import_pandas()
    if home == "pyarrow":
        from volmar.tables.arrow import as_frame

        return as_frame("the table", data)
    if hasattr(data, "collect"):  # a LazyFrame
        data = data.collect()
    # Column by column: polars' own way would need pyarrow.
    columns = {name: _of_polars(data[name]) for name in data.columns}
    try:
        return pd.DataFrame(columns)
    except UnicodeEncodeError as error:  # of polars' own objects, which may be any text
        raise TableError(
            f"the table has half of a surrogate pair in a text ({one_line(error)}); correct it"
        ) from error


def _of_polars(column: Any) -> Any:
    """Return the values of a column of polars; lists and records as objects."""
    import pandas as pd

    try:
        values = column.to_numpy()
    except Exception:  # an error of polars: NumPy has no integers of 128 bits
        values = None
    if values is not None and values.ndim == 1 and values.dtype.kind in "biufcmMOUS":
        return values
    return pd.Series(column.to_list(), dtype=object)


def check_table(estimator: Any, data: Any, *, reset: bool) -> Any:
    """Return a table as `as_columns` takes it, checked as scikit-learn checks input.

    `reset`: whether this is the table of the fit, which sets `n_features_in_` and
    `feature_names_in_`; otherwise an array must have as many columns as that. A named table may
    have its columns in any order, and others.
    """
    from sklearn.utils.validation import validate_data

    table = as_pandas(data)
    content = table.data if isinstance(table, LoadedTable) else table
    if hasattr(content, "iloc"):
        if reset:
            names = np.array(_names_of(content), dtype=object)
            estimator.feature_names_in_, estimator.n_features_in_ = names, len(names)
        return table
    if isinstance(table, LoadedTable) and (table.feature_names is not None or not reset):
        # A sparse file need not mention its last columns: the preparation adds them.
        if reset:
            vars(estimator).pop("feature_names_in_", None)
            estimator.n_features_in_ = content.shape[1]
        return table
    with checking(content, "data"):
        checked = validate_data(
            estimator,
            content,
            reset=reset,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
        )
    return table if isinstance(table, LoadedTable) else checked


def table_tags(tags: Any, missing: str) -> Any:
    """Return scikit-learn's tags of an estimator that takes tables."""
    tags.input_tags.allow_nan = missing != "error"
    tags.input_tags.sparse = True
    tags.input_tags.string = True
    tags.input_tags.categorical = True
    return tags


def as_columns(data: Any) -> Columns:
    """Return the columns of a `LoadedTable`, a DataFrame, an ndarray or a sparse array."""
    source, names, notes = "the table", None, []
    data = as_pandas(data)
    if isinstance(data, LoadedTable):
        source, names, notes, data = data.name, data.feature_names, data.notes, data.data
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        names = _names_of(data)
        refuse_duplicates(source, names)
        _refuse_signals(source, names, data)
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


def _names_of(frame: Any) -> list[str]:
    """Return the names of columns as text that can be written: no halves of surrogate pairs."""
    return [str(n).encode("utf-8", "backslashreplace").decode("utf-8") for n in frame.columns]


def _refuse_signals(source: str, names: list[str], frame: Any) -> None:
    """Refuse decimals that raise when they are compared: signalling NaN."""
    for name, dtype, (_, column) in zip(names, frame.dtypes, frame.items(), strict=True):
        if dtype.kind == "O":
            try:
                column.isna()
            except ArithmeticError as error:
                raise TableError(
                    f"{source}: column {shown(name)} holds a signalling NaN; write None in its "
                    "place"
                ) from error


def chosen_places(
    table: Columns,
    columns: Iterable[str] | None,
    drop: Iterable[str] | None,
    id_column: str | None,
) -> list[int]:
    """Return the places of the columns that these parameters of `Preparation` leave."""
    places = list(range(len(table.names)))
    if columns is not None:
        places = list(dict.fromkeys(table.find(names_given("columns", columns), "columns=")))
    out = set(table.find(names_given("drop", drop), "drop="))
    if id_column is not None:
        (j,) = table.find([id_column], "id_column=")
        if columns is not None and j in places:
            raise TableError(
                f"column {shown(id_column)} is in columns= and in id_column=; an id is not "
                "compared, so take it out of one of them"
            )
        out.add(j)
    places = [j for j in places if j not in out]
    if not places:
        raise TableError(
            f"{table.source} has no column left to compare after columns=, drop= and id_column=; "
            f"it has {quoted_names(table.names, 8)}"
        )
    return places


def fitted_places(table: Columns, wanted: list[str], names_in: list[str]) -> list[int]:
    """Return where columns of the fitted table are in a new one; by place, without names."""
    by_place = not table.named and len(table.names) == len(names_in)
    place = {name: j for j, name in enumerate(names_in if by_place else table.names)}
    if absent := [name for name in wanted if name not in place]:
        raise TableError(
            f"{table.source} lacks {len(absent)} of the {len(wanted)} columns that the model "
            f"was fitted on: {quoted_names(absent)}; give a table with these columns"
        )
    return [place[name] for name in wanted]


def names_given(argument: str, names: Any) -> list[str]:
    """Return the names of columns that an argument holds: none, one or several."""
    if names is None:
        return []
    # A single name is meant as one, not as its letters.
    found = [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
    if not all(isinstance(name, str) for name in found):
        raise TableError(
            f"{argument}={shown(names)} must be a list of names of columns, each a str; a column "
            "called by a number has that as its name, such as '0'"
        )
    return found


def _word(value: Any) -> str:
    # 1.0 is what a whole number becomes in a column with missing values.
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()
