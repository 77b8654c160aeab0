"""From dask collections to tables in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.rows.blocks.table import Blocks, BlockTable
from volmar.rows.blocks.vector import RowVector

__all__ = ["as_beside", "as_table", "is_dask"]


def is_dask(X: Any) -> bool:
    """Tell whether X is a dask array or DataFrame, without importing dask."""
    package = type(X).__module__.partition(".")[0]
    # A dask.delayed object has every attribute, as yet to be computed.
    return package in ("dask", "dask_expr") and isinstance(getattr(X, "ndim", None), int)


def as_table(X: Any) -> BlockTable:
    """Return the table of a dask array or DataFrame of shape (n, d).

    Unknown chunk sizes, which DataFrames and filtered arrays have, are computed first: a pass.
    Columns in several chunks are put together.

    Parameters
    ----------
    X : dask array or DataFrame
        The rows; a table is returned as it is.

    Returns
    -------
    BlockTable
    """
    if isinstance(X, BlockTable):
        return X
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array(lengths=True)
    if X.ndim != 2:
        raise ValueError(
            f"X must have two dimensions (rows, features), got a dask array with {X.ndim}. "
            "Reshape it, e.g. by X.reshape(-1, 1) if it has a single feature."
        )
    if X.dtype.kind not in "biuf":
        raise TypeError(
            f"X must hold real numbers, got a dask array of dtype {X.dtype}. Convert its columns, "
            "e.g. by X.astype(float)."
        )
    if len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    if any(np.isnan(size) for size in (*X.chunks[0], *X.chunks[1])):
        X = X.copy()
        X.compute_chunk_sizes()
    if 0 in X.shape:
        raise ValueError(f"X must have a row and a column at least, got {X.shape}.")
    return BlockTable(Blocks(X))


def as_beside(table: BlockTable, array: Any, name: str) -> RowVector:
    """Return an array with an entry for each row as a vector over the rows of a table.

    Parameters
    ----------
    table : BlockTable
        The rows.
    array : dask array, dask Series or array of shape (n,)
        Put into the same blocks where it is not.
    name : str
        What an error calls it.

    Returns
    -------
    RowVector
    """
    import dask.array as da

    if isinstance(array, RowVector):
        if array.table.rows_of is not table.rows_of:
            raise ValueError(f"{name} is a vector over other rows than those of X.")
        return array
    if hasattr(array, "to_dask_array"):
        array = array.to_dask_array(lengths=True)
    chunks = table.rows_of.X.chunks[:1]
    if not is_dask(array):
        array = np.asarray(array)
        if array.shape == (table.n_rows,):
            array = da.from_array(array, chunks=chunks)
    elif any(np.isnan(size) for size in array.shape):
        array = array.copy()
        array.compute_chunk_sizes()
    if array.shape != (table.n_rows,):
        raise ValueError(
            f"{name} must have one entry for each row, shape ({table.n_rows},), got {array.shape}."
        )
    if array.chunks != chunks:
        array = array.rechunk(chunks)
    return table.beside(array)
