"""The columns of a prepared table in their original units, to describe clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.columns import as_columns, fitted_places
from volmar.tables.dates import as_dates, date_parts
from volmar.tables.kinds import ColumnKind
from volmar.tables.notes import ONE_VALUE
from volmar.tables.numbers import as_numbers
from volmar.tables.prepare import Preparation

__all__ = ["source_columns"]


def source_columns(
    data: Any, preparation: Preparation, kept: NDArray[np.bool_], *, every: bool = False
) -> tuple[Any, list[str]]:
    """Return the original columns that a fitted preparation uses, and their names.

    Parameters
    ----------
    data : LoadedTable, DataFrame, ndarray or sparse array
        The table that was prepared.
    preparation : Preparation
        Preparation that was fitted to the table.
    kept : ndarray of bool
        Mask of the rows to return.
    every : bool, default=False
        If True, columns that are not used as features follow: all except ids and text, and the
        weekday and month of dates.

    Returns
    -------
    columns : DataFrame, ndarray or csr_array
        Numeric columns, then categorical columns, in the units of the table and with their
        missing values. In a DataFrame, ordinal columns are ordered categoricals, and dates are
        timestamps.
    names : list of str
        Names of the returned columns.
    """
    table = as_columns(data)
    names = [name for name in preparation.used_ if name in preparation.kinds_]
    places = fitted_places(table, names, preparation.names_in_)
    rows = np.flatnonzero(kept)
    if not table.is_frame:
        columns = table.data[rows][:, places]
        if table.is_sparse and not np.isfinite(columns.data).all():
            columns = columns.toarray()  # its missing values were filled in as a dense table
        return columns, names
    import pandas as pd

    found: dict[str, Any] = {}
    used = dict(zip(preparation.numbers_, preparation.number_kinds_, strict=True))
    for j, name in zip(places, names, strict=True):
        kind = used.get(name, ColumnKind("categorical"))
        found[name] = _shown_column(table.data.iloc[rows, j], kind)
    if every:
        place = {name: j for j, name in enumerate(table.names)}
        more = [
            place[name]
            for name, kind_name in preparation.kinds_.items()
            if name in place
            and name not in found
            and kind_name not in ("id", "text")
            and preparation.left_out_.get(name) not in ("not chosen", ONE_VALUE)
        ]
        for j, kind in zip(more, table.kinds(more, preparation.kinds or {}), strict=True):
            if kind.kind != "ignore":
                found[table.names[j]] = _shown_column(table.data.iloc[rows, j], kind)
        for name, kind in used.items():
            if kind.kind == "date":
                dates = as_dates(table.data.iloc[rows, place[name]], kind.layout)
                found |= date_parts(dates, name)
    return pd.DataFrame(found, index=table.data.index[rows]), list(found)


def _shown_column(series: Any, kind: ColumnKind) -> Any:
    import pandas as pd

    if kind.kind == "date":
        return as_dates(series, kind.layout)
    if kind.order is not None:
        words = series.astype(object).where(series.notna(), None)
        texts = [None if word is None else str(word).strip() for word in words]
        # New rows may have values that were not in the fitted table. They have no rank.
        values = [text if text in kind.order else None for text in texts]
        return pd.Categorical(values, categories=kind.order, ordered=True)
    if kind.kind == "numeric" and not pd.api.types.is_numeric_dtype(series.dtype):
        return as_numbers(series)
    return series.to_numpy() if series.dtype != object else series
