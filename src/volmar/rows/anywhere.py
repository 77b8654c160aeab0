"""What works on rows in memory and on rows in blocks alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from volmar.rows.blocks.table import BlockTable, CountedTable
from volmar.rows.blocks.vector import RowVector
from volmar.rows.moments import Moments
from volmar.rows.protocol import RowSource

__all__ = [
    "cluster_sizes",
    "counted_rows",
    "in_one_pass",
    "is_in_memory",
    "lazy_vector",
    "moments_of_sides",
    "prefetch",
    "take_rows",
]

Values = TypeVar("Values")


def in_one_pass(f: Callable[[], Values], *arrays: Any) -> Values:
    """Return what `f` returns; all that it asks of rows in blocks is answered by one pass.

    See `RowSource.in_one_pass`.

    Parameters
    ----------
    f : callable
        Asks for sums over the rows, which do not depend on each other.
    *arrays : array, sparse matrix, BlockTable, RowVector or None
        Rows, or vectors over them, that `f` asks.
    """
    prefetch(f, *arrays)
    return f()


def prefetch(f: Callable[[], Any], *arrays: Any) -> None:
    """Let one pass over rows in blocks bring all that `f` asks for (see `RowSource.prefetch`)."""
    for array in arrays:
        table = array.table if isinstance(array, RowVector) else array
        if isinstance(table, BlockTable):
            table.prefetch(f)
            return


def is_in_memory(X: Any) -> bool:
    """Return whether the rows of X, or its entries, are here and not in blocks elsewhere."""
    return not isinstance(X, (BlockTable, RowVector))


def take_rows(X: Any, index: np.ndarray) -> Any:
    """Return rows by their numbers, in memory; X itself if these are all its rows.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows.
    index : ndarray of int
        Different numbers, ascending.
    """
    if is_in_memory(X) and index.size == X.shape[0]:
        return X
    return X[index]


def counted_rows(X: Any, weights: Any) -> Any:
    """Return the rows of positive weight, to pick some of them by number.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows.
    weights : vector over the rows or None
        Their weights.
    """
    if weights is None:
        return X
    return X[weights > 0] if is_in_memory(X) else CountedTable(X, weights)


def lazy_vector(vector: Any) -> Any:
    """Return a vector over rows in blocks as a lazy dask array, anything else as it is."""
    return vector.to_dask() if isinstance(vector, RowVector) else vector


def cluster_sizes(labels: Any, weights: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight of each of k clusters, and a number that is smaller for earlier ones.

    The number is that of the cluster's first row; of two clusters of rows in blocks, 0 for the one
    of the first row and 1 for the other.

    Parameters
    ----------
    labels : vector over the rows
        Clusters, 0 to k - 1. Rows in blocks have two.
    weights : vector over the rows or None
        Sample weights.
    k : int
        Number of clusters.
    """
    if isinstance(labels, RowVector):
        first_row = (labels * (labels.table.row_numbers() == 0)).sum()
        total = float(labels.size if weights is None else weights.sum())
        second = float((labels if weights is None else weights * labels).sum())
        return np.array([total - second, second]), np.array([first_row > 0, first_row == 0]) * 1
    labels = np.asarray(labels).astype(np.intp)
    first = np.full(k, labels.size)
    first[labels[::-1]] = np.arange(labels.size)[::-1]
    return np.bincount(labels, weights, minlength=k), first


def moments_of_sides(rows: RowSource, mask: Any, whole: Moments) -> tuple[Moments, Moments]:
    """Return the moments of the masked rows, and those of the others, about the centre of `whole`.

    Parameters
    ----------
    rows : RowSource
        The rows.
    mask : bool vector over the rows
        One side. In memory only the rows of the smaller one are read.
    whole : Moments
        Those of all rows.
    """
    if is_in_memory(mask) and mask.sum() > mask.size / 2:
        others = rows.moments(~mask, center=whole.center)
        return whole - others, others
    side = rows.moments(mask, center=whole.center)
    return side, whole - side
