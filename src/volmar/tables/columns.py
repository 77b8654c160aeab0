"""Tables of any library: their columns as numbers or categories, and the choice of columns."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar._input import checking
from volmar.tables.errors import (
    TableError,
    import_pandas,
    nearest,
    one_line,
    quoted_names,
    refuse_duplicates,
    shown,
)
from volmar.tables.kinds import ColumnKind, as_dates, as_numbers, as_years, is_real, kind_of
from volmar.tables.read import LoadedTable, read_table

_NUMERIC = ColumnKind("numeric")


@dataclass(frozen=True)
class Columns:
    """A table with named columns. `notes` are the decisions made when it was read."""

    source: str  # name of the table in messages
    names: list[str]
    data: Any  # a DataFrame, ndarray or csr_array
    named: bool  # whether the table has column names; otherwise they are x0, x1, ...
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
        """Return the positions of the columns that are named in an argument."""
        if not wanted:
            return []
        place = {name: j for j, name in enumerate(self.names)}
        for name in wanted:
            if name not in place:
                raise TableError(
                    f"{self.source} has no column {shown(name)}, given in {argument}. "
                    f"{nearest(name, self.names)}"
                )
        return [place[name] for name in wanted]

    def padded(self, names: list[str]) -> Columns:
        """Extend a sparse table to all columns. A file may omit trailing zero columns."""
        n, d = self.data.shape
        if self.named or d >= len(names):
            return self
        data = self.data.copy()
        data.resize((n, len(names)))
        return Columns(self.source, list(names), data, True, self.notes)

    def csr(self, places: list[int]) -> Any:
        """Return columns of a sparse table as a CSR array of float64."""
        every = len(places) == len(self.names)
        columns = self.data if every else self.data[:, places]
        return sp.csr_array(columns).astype(np.float64, copy=False)

    def values(self, j: int) -> NDArray[Any]:
        """Return a column as a dense, one-dimensional array."""
        if self.is_frame:
            return np.asarray(self.data.iloc[:, j].to_numpy())
        column = self.data[:, [j]]
        return np.asarray(column.toarray() if self.is_sparse else column).ravel()

    def kinds(self, places: list[int], given: dict[str, str]) -> list[ColumnKind]:
        """Return the kinds of columns, as given or detected. Columns of an array are numeric."""
        names = [self.names[j] for j in places]
        if not self.is_frame:
            return [ColumnKind(given[name]) if name in given else _NUMERIC for name in names]
        # Iterating over the columns is ten times as fast as selecting each by position.
        columns = dict(zip(self.names, (column for _, column in self.data.items()), strict=True))
        return [kind_of(self.source, name, columns[name], given.get(name)) for name in names]

    def numbers(
        self, places: list[int], kinds: list[ColumnKind], notes: list[str]
    ) -> NDArray[np.float64]:
        """Return columns as float64: ranks of ordinal values, decimal years, NaN for others.

        Values that are not understood give a note. The result may share memory with the table.
        """
        every = places == list(range(len(self.names)))
        if not self.is_frame:
            for j, kind in zip(places, kinds, strict=True):
                if kind.order is not None or kind.kind == "date":
                    what = "dates" if kind.kind == "date" else "words"
                    raise TableError(
                        f"{self.source}: column {shown(self.names[j])} holds numbers, but held "
                        f"{what} in the fitted table. Give a table with the same kinds of columns."
                    )
            block = self.data if every else self.data[:, places]
            return block.toarray() if self.is_sparse else np.asarray(block, dtype=np.float64)
        chosen = self.data if every else self.data.iloc[:, places]
        plain = all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in chosen.dtypes)
        if plain and all(kind.order is None and kind.kind != "date" for kind in kinds):
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
            if kind.kind == "date":
                local = {"day first": "31/12/2024 or ", "month first": "12/31/2024 or "}
                what += f" such as {local.get(kind.layout or '', '')}2024-12-31"
            first = f"{shown(series.iloc[wrong[0]])} in row {wrong[0]}"
            if 2 * wrong.size > np.count_nonzero(known):
                raise TableError(
                    f"{self.source}: column {shown(self.names[j])} must hold {what}, as in the "
                    f"fitted table, got {first}. Correct this column."
                )
            notes.append(
                f"column {shown(self.names[j])} holds {what} and {wrong.size:,} other "
                f"value{'s' if wrong.size > 1 else ''}, treated as missing, such as {first}; "
                "correct them if they are not missing"
            )
        return values

    def n_missing(self, places: list[int]) -> list[int]:
        """Return the number of missing values in each column of a dense table."""
        if self.is_frame:
            return self.data.iloc[:, places].isna().to_numpy().sum(axis=0).tolist()
        return (~np.isfinite(self.data[:, places])).sum(axis=0).tolist()

    def categories(self, j: int) -> tuple[NDArray[np.intp], list[str]]:
        """Return a column as codes, -1 for missing, and its distinct values as sorted text."""
        import pandas as pd

        column = self.data.iloc[:, j] if self.is_frame else self.values(j)
        try:
            codes, values = pd.factorize(column)
        except TypeError as error:
            raise TableError(
                f"{self.source}: column {shown(self.names[j])} must hold categories, got lists or "
                "other nested values. Name it in drop=."
            ) from error
        words = [_word(value) for value in values]
        found = sorted(set(words))
        place = {word: k for k, word in enumerate(found)}
        moved = np.array([*(place[word] for word in words), -1], dtype=np.intp)
        return moved[codes], found

    def row_names(self) -> tuple[NDArray[Any], str]:
        """Return the index of a DataFrame, or row numbers from 0, and the name of these ids."""
        index = self.data.index if self.is_frame else None
        # An integer index is not used: it numbers rows, of which some may have been removed.
        if index is None or index.nlevels > 1 or index.dtype.kind in "iu":
            return np.arange(self.n_rows), "row"
        return index.to_numpy(), "row" if index.name is None else str(index.name)

    def ids(self, name: str) -> NDArray[Any]:
        """Return the ids of the rows from the column `name`."""
        (j,) = self.find([name], "id_column=")
        values = self.values(j)
        if values.dtype.kind == "O" and not all(isinstance(one, Hashable) for one in values):
            raise TableError(
                f"{self.source}: id column {shown(name)} holds lists or other nested values. Give "
                "another id_column=."
            )
        if values.dtype.kind != "f":
            return values
        known = np.isfinite(values)
        whole = values[known]
        if not whole.size or (np.abs(whole) >= 2.0**53).any() or (whole != np.rint(whole)).any():
            return values
        # Integers became floats because one is missing, or because the array has one dtype.
        if known.all():
            return whole.astype(np.int64)
        named = np.full(len(values), None, dtype=object)
        named[known] = whole.astype(np.int64)
        return named


def as_pandas(data: Any) -> Any:
    """Return a table of polars or pyarrow as a DataFrame, and read a path; others stay."""
    if hasattr(data, "to_frame") and not hasattr(data, "columns"):  # a Series
        data = data.to_frame()
    if isinstance(data, LoadedTable) or sp.issparse(data) or hasattr(data, "iloc"):
        if hasattr(data, "compute"):
            raise TableError(
                "data is a dask DataFrame, which is not in memory. Give data.compute() if it "
                "fits into memory, or fit a clusterer such as MSPC to the dask DataFrame."
            )
        return data
    if isinstance(data, (str, os.PathLike)):
        return read_table(os.fspath(data))
    home = type(data).__module__.partition(".")[0]
    if home not in ("polars", "pyarrow"):
        return data
    pd = import_pandas()
    if home == "pyarrow":
        from volmar.tables.read import arrow_frame

        return arrow_frame("The table", data)
    if hasattr(data, "collect"):  # a LazyFrame
        data = data.collect()
    # Converted by column, because `to_pandas` of polars needs pyarrow.
    columns = {name: _of_polars(data[name]) for name in data.columns}
    try:
        return pd.DataFrame(columns)
    except UnicodeEncodeError as error:  # object columns of polars may hold any text
        raise TableError(
            f"The table holds text with half of a surrogate pair ({one_line(error)}). Correct it."
        ) from error


def _of_polars(column: Any) -> Any:
    """Return the values of a polars column. Lists and records become objects."""
    import pandas as pd

    try:
        values = column.to_numpy()
    except Exception:  # polars raises errors of its own, such as for integers of 128 bits
        values = None
    if values is not None and values.ndim == 1 and values.dtype.kind in "biufcmMOUS":
        return values
    return pd.Series(column.to_list(), dtype=object)


def check_table(estimator: Any, data: Any, *, reset: bool) -> Any:
    """Return a table for `as_columns`, after the input checks of scikit-learn.

    With `reset`, `n_features_in_` and `feature_names_in_` are set. Otherwise an array must have as
    many columns. Named columns may be in any order, among others.
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
        # A sparse file may omit trailing zero columns. The preparation adds them.
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
            # `Preparation` raises a `TableError` for a file with one row.
            ensure_min_samples=2 if reset and not isinstance(table, LoadedTable) else 1,
        )
    return table if isinstance(table, LoadedTable) else checked


def table_tags(tags: Any, missing: str) -> Any:
    """Return the scikit-learn tags of an estimator that accepts tables."""
    tags.input_tags.allow_nan = missing != "error"
    tags.input_tags.sparse = True
    tags.input_tags.string = True
    tags.input_tags.categorical = True
    return tags


def as_columns(data: Any) -> Columns:
    """Return the columns of a `LoadedTable`, a DataFrame, an ndarray or a sparse array."""
    source, names, notes = "The table", None, []
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
                f"{source} must hold numbers, got values of dtype {data.dtype}. Give a DataFrame "
                "if some columns are text."
            )
    if data.ndim != 2:
        raise TableError(f"{source} must have two dimensions, got the shape {data.shape}.")
    named = names is not None and len(names) == data.shape[1]
    if not named:
        names = [f"x{j}" for j in range(data.shape[1])]
    return Columns(source, list(names or []), data, named, notes)


def _names_of(frame: Any) -> list[str]:
    """Return the names of columns as text, with half surrogate pairs escaped."""
    return [str(n).encode("utf-8", "backslashreplace").decode("utf-8") for n in frame.columns]


def _refuse_signals(source: str, names: list[str], frame: Any) -> None:
    """Raise `TableError` for signalling NaN, which raises an error in comparisons."""
    for j in [j for j, dtype in enumerate(frame.dtypes) if dtype.kind == "O"]:
        try:
            frame.iloc[:, j].isna()
        except ArithmeticError as error:
            where = f"{source}: column {shown(names[j])} holds a signalling NaN"
            raise TableError(f"{where}. Replace it by None.") from error


def chosen_places(
    table: Columns,
    columns: Iterable[str] | None,
    drop: Iterable[str] | None,
    id_column: str | None,
) -> list[int]:
    """Return the positions of the columns that these parameters of `Preparation` select."""
    places = list(range(len(table.names)))
    if columns is not None:
        places = list(dict.fromkeys(table.find(names_given("columns", columns), "columns=")))
    out = set(table.find(names_given("drop", drop), "drop="))
    if id_column is not None:
        (j,) = table.find([id_column], "id_column=")
        if columns is not None and j in places:
            raise TableError(
                f"Column {shown(id_column)} is given in columns= and in id_column=. An id is not "
                "a feature: remove the column from one of them."
            )
        out.add(j)
    places = [j for j in places if j not in out]
    if not places:
        raise TableError(
            f"{table.source} has no columns left after columns=, drop= and id_column=. Select "
            f"some of its columns {quoted_names(table.names, 8)}."
        )
    return places


def fitted_places(table: Columns, wanted: list[str], names_in: list[str]) -> list[int]:
    """Return the positions of fitted columns in a new table: by name, or else by position."""
    by_place = not table.named and len(table.names) == len(names_in)
    place = {name: j for j, name in enumerate(names_in if by_place else table.names)}
    if absent := [name for name in wanted if name not in place]:
        raise TableError(
            f"{table.source} lacks {len(absent)} of the {len(wanted)} columns that the model "
            f"was fitted to: {quoted_names(absent)}. Give a table with these columns."
        )
    return [place[name] for name in wanted]


def names_given(argument: str, names: Any) -> list[str]:
    """Return the column names of an argument as a list. None gives an empty list."""
    if names is None:
        return []
    # A str is a single name, not a list of letters.
    found = [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
    if not all(isinstance(name, str) for name in found):
        raise TableError(
            f"{argument} must be a list of column names of type str, got {shown(names)}. Give "
            "the name of a numbered column as text, such as '0'."
        )
    return found


def _word(value: Any) -> str:
    # An integer becomes a float, such as 1.0, in a column with missing values.
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()
