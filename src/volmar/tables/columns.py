"""Columns of any table as numbers or as categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar.tables.errors import TableError, nearest, shown
from volmar.tables.read import LoadedTable

__all__ = ["MAX_CATEGORIES", "Columns", "as_columns", "refuse_duplicates"]

MAX_CATEGORIES = 50
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

    def is_text(self, j: int) -> bool:
        """Tell whether a column is text, bool or category, not numbers; refuse all else."""
        if not self.is_frame:
            return False
        kind = _kind(self.data.iloc[:, j])
        if kind not in ("number", "text"):
            raise TableError(
                f"{self.source}: column {shown(self.names[j])} holds {kind}, which are not "
                "compared; leave it out with --drop, or turn it into numbers"
            )
        return kind == "text"

    def numbers(self, places: list[int]) -> NDArray[np.float64]:
        """Return columns as float64, NaN for missing; may share memory with the table."""
        every = places == list(range(len(self.names)))
        if not self.is_frame:
            block = self.data if every else self.data[:, places]
            return block.toarray() if self.is_sparse else np.asarray(block, dtype=np.float64)
        chosen = self.data if every else self.data.iloc[:, places]
        if all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in chosen.dtypes):
            return chosen.to_numpy(dtype=np.float64)
        block = np.empty((self.n_rows, len(places)), order="F")
        for k, j in enumerate(places):
            block[:, k] = self._as_numbers(j)
        return block

    def _as_numbers(self, j: int) -> NDArray[np.float64]:
        import pandas as pd

        series = self.data.iloc[:, j]
        if pd.api.types.is_numeric_dtype(series.dtype):
            return series.to_numpy(dtype=np.float64, na_value=np.nan)
        parsed = pd.to_numeric(series.astype(object), errors="coerce")
        values = parsed.to_numpy(dtype=np.float64, na_value=np.nan)
        wrong = np.flatnonzero(np.isnan(values) & ~series.isna().to_numpy())
        if wrong.size:
            raise TableError(
                f"{self.source}: column {shown(self.names[j])} must hold numbers as in the "
                f"fitted table, got {shown(series.iloc[wrong[0]])} in row {wrong[0]}; mend this "
                "column, or leave such fields empty if the fit had --missing drop or impute"
            )
        return values

    def categories(self, j: int, *, groups: bool = False) -> tuple[NDArray[np.intp], list[str]]:
        """Return a column as codes, -1 for missing, and its different values as sorted text.

        With `groups`, text that names the rows rather than groups them is refused.
        """
        import pandas as pd

        series = self.data.iloc[:, j]
        try:
            codes, values = pd.factorize(series)
        except TypeError as error:
            raise TableError(
                f"{self.source}: column {shown(self.names[j])} holds values that are not single "
                "texts or numbers; leave it out with --drop"
            ) from error
        if groups:
            self._check_groups(j, int(np.count_nonzero(codes >= 0)), values)
        words = [_word(value) for value in values]
        found = sorted(set(words))
        place = {word: k for k, word in enumerate(found)}
        moved = np.array([*(place[word] for word in words), -1], dtype=np.intp)
        return moved[codes], found

    def _check_groups(self, j: int, n_known: int, values: Any) -> None:
        different = len(values) == n_known > 1 and not _is_bool(self.data.iloc[:, j])
        if len(values) <= MAX_CATEGORIES and not different:
            return
        name = shown(self.names[j])
        if hint := self._nearly_numbers(j):
            raise TableError(f"{self.source}: column {name} {hint}")
        count = f"{len(values)} different values" + (", one for each row" if different else "")
        raise TableError(
            f"{self.source}: column {name} is text with {count} "
            f"({shown(values[0])}, {shown(values[1])}, ...); leave it out with --drop, or give it "
            "to --id"
        )

    def _nearly_numbers(self, j: int) -> str:
        """Return what is wrong with a column of numbers that has some other text in it."""
        import pandas as pd

        series = self.data.iloc[:, j]
        first = series.iloc[:1000].dropna().astype(object)
        if 2 * pd.to_numeric(first, errors="coerce").count() < len(first):
            return ""
        parsed = pd.to_numeric(series.astype(object), errors="coerce").isna().to_numpy()
        known = ~series.isna().to_numpy()
        wrong = np.flatnonzero(parsed & known)
        if 2 * wrong.size >= np.count_nonzero(known):
            return ""
        return (
            f"holds numbers and {wrong.size} other value(s), the first "
            f"{shown(series.iloc[wrong[0]])} in row {wrong[0]}; leave such fields empty "
            "and give --missing drop or --missing impute, or leave the column out with --drop"
        )

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


def _kind(series: Any) -> str:
    """Return "number", "text", or what a column holds that is neither."""
    import pandas as pd

    types = pd.api.types
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype) or types.is_bool_dtype(dtype):
        return "text"
    if types.is_complex_dtype(dtype):
        return "complex numbers"
    if types.is_numeric_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        return "dates"
    if types.is_timedelta64_dtype(dtype):
        return "lengths of time"
    found = types.infer_dtype(series, skipna=True)
    if found in ("integer", "floating", "mixed-integer-float", "decimal", "empty"):
        return "number"
    if found in ("string", "boolean", "mixed-integer", "mixed", "categorical"):
        return "text"
    return "dates" if found.startswith(("date", "time", "period")) else f"values of kind {found}"


def _is_bool(series: Any) -> bool:
    import pandas as pd

    return bool(
        pd.api.types.is_bool_dtype(series.dtype)
        or (series.dtype == object and pd.api.types.infer_dtype(series, skipna=True) == "boolean")
    )


def _word(value: Any) -> str:
    # 1.0 is what a whole number becomes in a column with missing values.
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _whole(values: NDArray[Any]) -> bool:
    known = values[np.isfinite(values)]
    return bool(known.size and (np.abs(known) < _EXACT).all() and (known == np.rint(known)).all())
