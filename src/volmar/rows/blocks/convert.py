"""Conversion of dask collections to tables in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.rows.blocks.table import Blocks, BlockTable
from volmar.rows.blocks.vector import RowVector


def is_dask(X: Any) -> bool:
    """Return whether X is a dask array or DataFrame, without importing dask."""
    package = type(X).__module__.partition(".")[0]
    # A dask.delayed object has every attribute, also ndim, but as another delayed object.
    return package in ("dask", "dask_expr") and isinstance(getattr(X, "ndim", None), int)


def as_table(X: Any) -> BlockTable:
    """Return the table of a dask array or DataFrame of shape (n, d).

    Unknown chunk sizes, which DataFrames and filtered arrays have, are computed first by a pass
    over the data. Several chunks of columns are merged.

    Parameters
    ----------
    X : dask array or DataFrame
        The rows. A BlockTable is returned unchanged.

    Returns
    -------
    BlockTable
    """
    if isinstance(X, BlockTable):
        return X
    X = as_dask_array(X)
    if X.ndim != 2:
        raise ValueError(
            f"X must have two dimensions (rows, features), got a dask array with {X.ndim}. "
            "Reshape it, e.g. by X.reshape(-1, 1) if it has a single feature."
        )
    if X.dtype.kind not in "biuf":
        raise TypeError(
            f"X must hold real numbers, got a dask array of dtype {X.dtype}. Convert its columns, "
            "e.g. with X.astype(float)."
        )
    if len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    X = with_sizes(X)
    if 0 in X.shape:
        raise ValueError(f"X must have at least one row and one column, got shape {X.shape}.")
    return BlockTable(Blocks(X))


def as_beside(table: BlockTable | RowVector, array: Any, name: str) -> RowVector:
    """Return an array with one entry per row as a vector over the rows of a table.

    Parameters
    ----------
    table : BlockTable or RowVector
        The rows, or another vector over them.
    array : dask array, dask Series or array of shape (n,)
        The entries. They are rechunked to the blocks of the rows if necessary.
    name : str
        Name of the array in error messages.

    Returns
    -------
    RowVector
    """
    import dask.array as da

    table = table.table if isinstance(table, RowVector) else table
    if isinstance(array, RowVector):
        if array.table.rows_of is not table.rows_of:
            raise ValueError(f"{name} is a vector over other rows than X.")
        return array
    array = as_dask_array(array)
    chunks = table.rows_of.X.chunks[:1]
    if not is_dask(array):
        array = np.asarray(array)
        if array.shape == (table.n_rows,):
            array = da.from_array(array, chunks=chunks)
    else:
        array = with_sizes(array)
    if array.shape != (table.n_rows,):
        raise ValueError(
            f"{name} must have one entry for each row, shape ({table.n_rows},), got {array.shape}."
        )
    if array.chunks != chunks:
        array = array.rechunk(chunks)
    return table.beside(array)


def as_dask_array(collection: Any) -> Any:
    """Return a dask DataFrame or Series as a dask array, anything else unchanged.

    ``lengths=True`` cannot be used: dask merges small Parquet files depending on the columns that
    are read, so the lengths may be those of other blocks than the blocks of the array.
    """
    return collection.to_dask_array() if hasattr(collection, "to_dask_array") else collection


def with_sizes(array: Any) -> Any:
    """Return a dask array with known chunk sizes, computed by a pass if they are unknown."""
    if any(np.isnan(size) for sizes in array.chunks for size in sizes):
        array = array.copy()
        array.compute_chunk_sizes()
    return array
