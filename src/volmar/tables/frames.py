"""Tables of other libraries as a DataFrame of pandas, an array or a sparse array."""

from __future__ import annotations

import os
from typing import Any

import scipy.sparse as sp

from volmar.tables.errors import TableError, need
from volmar.tables.read import LoadedTable, read_table

__all__ = ["as_pandas"]


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
    try:
        import pandas as pd
    except ImportError as error:
        raise need("pandas") from error
    if home == "pyarrow":
        return data.to_pandas()
    if hasattr(data, "collect"):  # a LazyFrame
        data = data.collect()
    # Column by column: polars' own way would need pyarrow.
    return pd.DataFrame({name: data[name].to_numpy() for name in data.columns})
